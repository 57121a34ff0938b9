package identity_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"isobar.dev/control/enroll"
	"isobar.dev/source/antrea"
)

// watching starts a Source of an agent, which ends with the test.
func watching(t *testing.T, id *enroll.Identity) *antrea.Source {
	t.Helper()
	source, err := antrea.New(id.Endpoint(), id.Of().String(), antrea.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return source
}

// policiesOf waits for what a Source knows.
func policiesOf(t *testing.T, s *site, source *antrea.Source) (names []string) {
	t.Helper()
	select {
	case <-source.Synced():
	case <-time.After(30 * time.Second):
		t.Fatalf("nothing is known: %+v\n%s", source.Status(), s.log)
	}
	for _, p := range source.State().Policies {
		names = append(names, p.UID)
	}
	return names
}

// From nothing to enforcing: a token, a certificate, and what the controller has computed for this VM, and
// no other.
func TestJoinAndWatch(t *testing.T) {
	s := newSite(t)
	a := s.join("a")
	if got, want := policiesOf(t, s, watching(t, a)), []string{"uid-a"}; !slices.Equal(got, want) {
		t.Errorf("the agent knows %v, want %v", got, want)
	}
}
