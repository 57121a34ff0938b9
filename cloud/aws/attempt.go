package aws

import (
	"context"
	"errors"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// Attempt is one attempt of a call of EC2.
type Attempt struct {
	Region, API string
	Result      Result
}

// Result is how an attempt ended.
type Result string

// The results.
const (
	ResultOK        Result = "ok"
	ResultThrottled Result = "throttled" // asked too often
	ResultDenied    Result = "denied"    // the credentials are wrong, or lack a right
	ResultQuota     Result = "quota"     // a quota is used up
	ResultRefused   Result = "refused"   // other errors in what was asked
	ResultServer    Result = "server"    // EC2's own error
	ResultCanceled  Result = "canceled"  // given up by us
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
	switch {
	case c == "RequestLimitExceeded" || strings.HasPrefix(c, "Throttl") || strings.HasPrefix(c, "TooManyRequests"):
		return ResultThrottled
	case c == "UnauthorizedOperation" || c == "AuthFailure" || c == "InvalidClientTokenId" || c == "OptInRequired" || strings.HasPrefix(c, "AccessDenied") || strings.HasPrefix(c, "ExpiredToken") || strings.HasPrefix(c, "RequestExpired"):
		return ResultDenied
	case strings.HasSuffix(c, "LimitExceeded") || strings.HasSuffix(c, "LimitsExceeded") || strings.Contains(c, "LimitPer"):
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
