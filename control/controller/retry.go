package controller

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"
)

// backoff returns how long to wait after n failures in a row, from 1: base
// doubled each time up to most, less a random quarter so that loops which failed
// together do not come back together.
func backoff(n int, base, most time.Duration) time.Duration {
	d := base
	for ; n > 1 && d < most; n-- {
		d *= 2
	}
	d = min(d, most)
	return d - time.Duration(rand.Int64N(int64(d)/4+1))
}

// jitter returns d, give or take a tenth.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d)/5+1))
}

// throttled says whether a cloud refused because it was asked too often: then
// news is no reason to ask again sooner.
func throttled(err error) bool {
	code := codeOf(err)
	return code == "RequestLimitExceeded" || strings.HasPrefix(code, "Throttl") || strings.HasPrefix(code, "TooManyRequests")
}

// refusesCredentials says whether a cloud refused because of who asks.
func refusesCredentials(err error) bool {
	switch code := codeOf(err); code {
	case "AuthFailure", "AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "InvalidClientTokenId", "UnrecognizedClientException",
		"SignatureDoesNotMatch", "RequestExpired", "ExpiredToken", "ExpiredTokenException", "OptInRequired":
		return true
	}
	return false
}

// exceedsQuota says whether a cloud refused because a quota is used up.
func exceedsQuota(err error) bool {
	code := codeOf(err)
	return !throttled(err) && (strings.HasSuffix(code, "LimitExceeded") || strings.HasSuffix(code, "LimitsExceeded") ||
		strings.Contains(code, "LimitPer") || strings.Contains(code, "QuotaExceeded"))
}

// codeOf returns a cloud's own code for an error, or "".
func codeOf(err error) string {
	var coded interface{ ErrorCode() string }
	if !errors.As(err, &coded) {
		return ""
	}
	return coded.ErrorCode()
}
