package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"isobar.dev/cloud"
)

// Attempt is one attempt of a call of Azure.
type Attempt struct {
	Region string
	API    string // the right that it needs, such as Microsoft.Network/networkInterfaces/read
	Result Result
}

// Result is how an attempt ended.
type Result string

// The results.
const (
	ResultOK        Result = "ok"
	ResultThrottled Result = Result(cloud.Throttled) // asked too often
	ResultDenied    Result = Result(cloud.Denied)    // the credentials are wrong, or lack a right, or a lock forbids it
	ResultQuota     Result = Result(cloud.NoQuota)   // a quota is used up
	ResultConflict  Result = "conflict"              // somebody else writes, or has written since we read
	ResultInUse     Result = "in_use"                // something still needs what was to be deleted
	ResultGone      Result = "gone"                  // it is not there
	ResultRefused   Result = "refused"               // other errors in what was asked
	ResultServer    Result = "server"                // Azure's own error
	ResultCanceled  Result = "canceled"              // given up by us
	ResultNoAnswer  Result = "no_answer"             // or none that can be read
)

// armError is what Azure answered in place of what was asked for, on one line.
type armError struct {
	status        int
	code, message string
}

func (e *armError) Error() string {
	text := e.code
	if text == "" {
		text = fmt.Sprintf("status %d", e.status)
	}
	if e.message != "" {
		text += ": " + e.message
	}
	return text
}

// Cause is what control goes by.
func (e *armError) Cause() cloud.Cause {
	switch r := e.result(); r {
	case ResultThrottled, ResultDenied, ResultQuota:
		return cloud.Cause(r)
	}
	return ""
}

// maxMessage bounds what we repeat of a message of Azure, in bytes.
const maxMessage = 600

// readable returns err with the SDK's page of text as one line.
func readable(err error) error {
	var login *azidentity.AuthenticationFailedError
	var answer *azcore.ResponseError
	switch {
	case errors.As(err, &login):
		out := &armError{status: http.StatusUnauthorized, code: "authentication failed"}
		if login.RawResponse == nil { // it says why in its own words
			out.message = oneLine(login.Error())
			return out
		}
		out.status = login.RawResponse.StatusCode
		var body struct {
			Error       string `json:"error"`
			Description string `json:"error_description"`
		}
		if payload, err := runtime.Payload(login.RawResponse); err == nil && json.Unmarshal(payload, &body) == nil && body.Error != "" {
			// Where it goes on about the single request, it is another text each time.
			text, _, _ := strings.Cut(body.Description, "Trace ID:")
			out.message = oneLine(body.Error + ": " + text)
		} else {
			out.message = fmt.Sprintf("status %d of the token authority", out.status)
		}
		return out
	case errors.As(err, &answer) && answer.RawResponse != nil:
		return errorOf(answer.RawResponse)
	}
	return err
}

// errorOf reads the error in an answer, which can be read again afterwards.
func errorOf(resp *http.Response) *armError {
	out := &armError{status: resp.StatusCode}
	type told struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	var body struct {
		Error struct {
			told
			Details []told `json:"details"`
		} `json:"error"`
	}
	payload, err := runtime.Payload(resp)
	if err != nil || json.Unmarshal(payload, &body) != nil {
		return out
	}
	e := body.Error.told
	// What is wrong with a body is told in the details alone.
	if d := body.Error.Details; len(d) > 0 && d[0].Code != "" && (e.Code == "" || e.Code == "InvalidRequestFormat" || e.Code == "BadRequest") {
		e = d[0]
	}
	out.code, out.message = oneLine(e.Code), oneLine(e.Message)
	return out
}

// oneLine cuts a text short, in characters that do no harm in a status or a log.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))), " ")
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "") + "…"
	}
	return s
}

// resultOf returns how the attempt ended that gave err.
func resultOf(err error) Result {
	if err == nil {
		return ResultOK
	}
	err = readable(err)
	var e *armError
	switch {
	case errors.As(err, &e):
		return e.result()
	case errors.Is(err, errChanged):
		return ResultConflict
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return ResultCanceled
	}
	return ResultNoAnswer
}

func (e *armError) result() Result {
	code := strings.ToLower(e.code)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(code, p) {
				return true
			}
		}
		return false
	}
	switch {
	case has("anotheroperation", "superseded", "preempted", "notprovisioned", "operationnotallowedonprovisioningstate") || e.status == http.StatusPreconditionFailed:
		return ResultConflict // although some of them say that we ask too often
	case e.status == http.StatusTooManyRequests || has("throttled", "toomanyrequests"):
		return ResultThrottled
	case has("scopelocked", "disallowedbypolicy", "readonlydisabled") || e.status == http.StatusUnauthorized || e.status == http.StatusForbidden || e.code == "authentication failed":
		return ResultDenied
	case has("limitreached", "limitexceeded", "quota", "cannothavemorethan", "countexceeded", "maximumnumber"):
		return ResultQuota
	case has("inuse", "cannotbedeleted", "isbeingused"):
		return ResultInUse
	case e.status == http.StatusNotFound || has("resourcenotfound", "resourcegroupnotfound"):
		return ResultGone
	case e.status == http.StatusConflict:
		return ResultConflict
	case e.status >= 500:
		return ResultServer
	}
	return ResultRefused
}
