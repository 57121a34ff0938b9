package cloud

import "errors"

// Cause is why a cloud did not do what it was asked for, as far as it matters what is
// done about it.
type Cause string

// The causes. All others are the zero Cause.
const (
	Throttled Cause = "throttled" // asked too often: asking sooner makes it worse
	Denied    Cause = "denied"    // the credentials are wrong, or lack a right
	NoQuota   Cause = "quota"     // a quota is used up
)

// CauseOf returns the Cause of an error of an adapter: that of the first error in its
// tree that has one to tell.
func CauseOf(err error) Cause {
	var told interface{ Cause() Cause }
	if !errors.As(err, &told) {
		return ""
	}
	return told.Cause()
}
