package azure

import (
	"fmt"
	"net/http"
	"time"
)

// apiError is an answer of Resource Manager that refuses.
type apiError struct {
	status  int
	code    string
	message string
	details []*apiError
	after   time.Duration // Retry-After, when it is not zero
}

func (e *apiError) Error() string {
	text := e.code + ": " + e.message
	for _, d := range e.details {
		text += " " + d.Error()
	}
	return text
}

// errorStatus are the HTTP statuses of codes that are not refused with 400.
var errorStatus = map[string]int{ // read only
	"AnotherOperationInProgress":                 http.StatusTooManyRequests,
	"AuthorizationFailed":                        http.StatusForbidden,
	"Conflict":                                   http.StatusConflict,
	"ExpiredAuthenticationToken":                 http.StatusUnauthorized,
	"InternalServerError":                        http.StatusInternalServerError,
	"InvalidAuthenticationToken":                 http.StatusUnauthorized,
	"InvalidAuthenticationTokenTenant":           http.StatusUnauthorized,
	"InvalidResourceNamespace":                   http.StatusNotFound,
	"InvalidResourceType":                        http.StatusNotFound,
	"LinkedAuthorizationFailed":                  http.StatusForbidden,
	"MethodNotAllowed":                           http.StatusMethodNotAllowed,
	"NotFound":                                   http.StatusNotFound,
	"OperationNotAllowed":                        http.StatusConflict,
	"ParentResourceNotFound":                     http.StatusNotFound,
	"PreconditionFailed":                         http.StatusPreconditionFailed,
	"ReadOnlyDisabledSubscription":               http.StatusConflict,
	"RequestDisallowedByPolicy":                  http.StatusForbidden,
	"RequestEntityTooLarge":                      http.StatusRequestEntityTooLarge,
	"ResourceGroupBeingDeleted":                  http.StatusConflict,
	"ResourceGroupNotFound":                      http.StatusNotFound,
	"ResourceNotFound":                           http.StatusNotFound,
	"RetryableError":                             http.StatusTooManyRequests,
	"RetryableErrorDueToAnotherOperation":        http.StatusTooManyRequests,
	"ScopeLocked":                                http.StatusConflict,
	"ServiceUnavailable":                         http.StatusServiceUnavailable,
	"SubscriptionNotFound":                       http.StatusNotFound,
	"SubscriptionRequestsThrottled":              http.StatusTooManyRequests,
	"TooManyRequests":                            http.StatusTooManyRequests,
	"AuthenticationFailed":                       http.StatusUnauthorized,
	"InvalidResourceLocation":                    http.StatusConflict,
	"CanceledAndSupersededDueToAnotherOperation": http.StatusConflict,
}

// errf makes an error with the HTTP status that Azure uses for the code.
func errf(code, format string, args ...any) *apiError {
	status := errorStatus[code]
	if status == 0 {
		status = http.StatusBadRequest
	}
	return &apiError{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// with adds a detail.
func (e *apiError) with(d *apiError) *apiError {
	e.details = append(e.details, d)
	return e
}

// json is the body in which the error is told.
func (e *apiError) json() map[string]any {
	details := []any{}
	for _, d := range e.details {
		details = append(details, map[string]any{"code": d.code, "message": d.message})
	}
	return map[string]any{"code": e.code, "message": e.message, "details": details}
}

// malformed refuses a body that does not say what it must.
func malformed(code, format string, args ...any) *apiError {
	return errf("InvalidRequestFormat", "Cannot parse the request.").with(errf(code, format, args...))
}

func noResource(id resourceID) *apiError {
	return errf("ResourceNotFound", "The Resource '%s/%s' under resource group '%s' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix",
		id.typeName(), id.nameText(), id.group)
}
