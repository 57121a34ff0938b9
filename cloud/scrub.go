package cloud

import (
	"errors"
	"strings"
)

// Scrub takes secrets out of an error's text; empty ones do not count. What the error is can still be
// asked by [errors.Is] and [CauseOf], but nothing in it can be had that would tell them.
func Scrub(err error, secrets ...string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	clean := text
	for _, s := range secrets {
		if s != "" {
			clean = strings.ReplaceAll(clean, s, "***")
		}
	}
	if clean == text {
		return err
	}
	return &scrubbed{clean, err}
}

type scrubbed struct {
	text  string
	cause error
}

func (s *scrubbed) Error() string        { return s.text }
func (s *scrubbed) Is(target error) bool { return errors.Is(s.cause, target) }
func (s *scrubbed) Cause() Cause         { return CauseOf(s.cause) }
