package aws

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"isobar.dev/cloud"
)

// Attempt is one attempt of a call of EC2, RDS or Elastic Load Balancing: no two of
// the calls that are used have one name.
type Attempt struct {
	Region, API string
	Result      Result
}

// Result is how an attempt ended.
type Result string

// The results.
const (
	ResultOK        Result = "ok"
	ResultThrottled Result = Result(cloud.Throttled) // asked too often
	ResultDenied    Result = Result(cloud.Denied)    // the credentials are wrong, or lack a right
	ResultQuota     Result = Result(cloud.NoQuota)   // a quota is used up
	ResultRefused   Result = "refused"               // other errors in what was asked
	ResultServer    Result = "server"                // AWS's own error
	ResultCanceled  Result = "canceled"              // given up by us
	ResultNoAnswer  Result = "no_answer"
)

// isRead says whether an API changes nothing.
func isRead(api string) bool {
	return strings.HasPrefix(api, "Describe") || strings.HasPrefix(api, "Get")
}

// resultOf returns how the attempt ended that gave err.
func resultOf(err error) Result {
	if err == nil {
		return ResultOK
	}
	var answer *awshttp.ResponseError
	c := code(err)
	_, isThrottled := retry.DefaultThrottleErrorCodes[c]
	switch {
	case isThrottled || strings.HasPrefix(c, "Throttl") || strings.HasPrefix(c, "TooManyRequests"):
		return ResultThrottled
	case slices.Contains(deniedCodes, c) || strings.HasPrefix(c, "AccessDenied") || strings.HasPrefix(c, "ExpiredToken"):
		return ResultDenied
	case strings.HasSuffix(c, "LimitExceeded") || strings.HasSuffix(c, "LimitsExceeded") || strings.Contains(c, "LimitPer") ||
		strings.Contains(c, "QuotaExceeded") || c == "TooManyTags":
		return ResultQuota
	case errors.As(err, &answer) && answer.HTTPStatusCode() >= 500:
		return ResultServer
	case c != "":
		return ResultRefused
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return ResultCanceled
	}
	return ResultNoAnswer
}

// caused is an error of a call.
type caused struct{ error }

func (c caused) Unwrap() error { return c.error }

// Cause is what control goes by.
func (c caused) Cause() cloud.Cause {
	switch r := resultOf(c.error); r {
	case ResultThrottled, ResultDenied, ResultQuota:
		return cloud.Cause(r)
	}
	return ""
}

// deniedCodes are those of the three services for who asks. RDS and Elastic Load
// Balancing have names of their own for what EC2 calls AuthFailure.
var deniedCodes = []string{
	"UnauthorizedOperation", "AuthFailure", "InvalidClientTokenId", "OptInRequired", "RequestExpired",
	"SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationToken", "NotAuthorized", "UnrecognizedClientException",
}
