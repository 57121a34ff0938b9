package aws

import (
	"fmt"
	"net/http"
)

// apiError is an answer that refuses.
type apiError struct {
	status  int
	code    string
	message string
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

// errf makes an error with the HTTP status that EC2 uses for the code.
func errf(code, format string, args ...any) *apiError {
	status := http.StatusBadRequest
	switch code {
	case "AuthFailure":
		status = http.StatusUnauthorized
	case "UnauthorizedOperation", "AccessDenied", "InvalidClientTokenId", "SignatureDoesNotMatch", "MissingAuthenticationToken", "ExpiredToken", "OptInRequired":
		status = http.StatusForbidden
	case "DryRunOperation":
		status = http.StatusPreconditionFailed
	case "DBInstanceNotFound":
		status = http.StatusNotFound
	case "RequestLimitExceeded":
		status = http.StatusServiceUnavailable
	case "InternalError":
		status = http.StatusInternalServerError
	}
	return &apiError{status, code, fmt.Sprintf(format, args...)}
}

func missing(name string) *apiError {
	return errf("MissingParameter", "The request must contain the parameter %s", name)
}

func invalid(format string, args ...any) *apiError {
	return errf("InvalidParameterValue", format, args...)
}
