package identity_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/control/enroll"
	"isobar.dev/control/identity"
	"isobar.dev/control/plane/planetest"
)

// Two replicas: what one has done counts at the other at once. A renewal takes the place of the certificate before with
// its first use, so of a machine and its copy one is refused, and told.
func TestRenewal(t *testing.T) {
	s := newSite(t)
	other := startSite(t, s.env, s.ns, identity.Options{})
	s.machine("a")
	dir := filepath.Join(t.TempDir(), "a")
	request := s.request(s.token("a", time.Hour), dir)
	request.Servers = []string{s.url, other.url}
	a, err := enroll.Join(t.Context(), request, enroll.Options{})
	if err != nil {
		t.Fatal(err)
	}
	copied, err := enroll.Open(clone(t, dir), enroll.Options{})
	if err != nil {
		t.Fatal(err)
	}
	source := watching(t, a)
	if got := policiesOf(t, s, source); len(got) != 1 {
		t.Errorf("knows %v", got)
	}
	for i := range 5 { // by either replica
		old := s.identity("a").Status.Keys
		if err := a.Renew(t.Context()); err != nil {
			t.Fatalf("renewal %d: %v\n%s\n%s", i, err, s.log, other.log)
		}
		if now := s.identity("a").Status; len(now.Keys) != 2 || now.Keys[0].Fingerprint != old[len(old)-1].Fingerprint || now.RenewTime == nil {
			t.Errorf("after renewal %d: %+v; before: %+v", i, now, old)
		}
	}
	// What is open with the former certificate ends when the next one is used, and begins again.
	planetest.Eventually(t, "the next key alone", func(ctx context.Context) error {
		if err := ping(ctx, a, "networkpolicies"); err != nil {
			return err
		}
		if n := len(s.identity("a").Status.Keys); n != 1 {
			return fmt.Errorf("%d keys", n)
		}
		return nil
	})
	planetest.Eventually(t, "the Source watches again", func(context.Context) error {
		if st := source.Status(); !source.Reach().Live {
			return fmt.Errorf("%+v", st.Watches)
		}
		return nil
	})
	for _, url := range []string{s.url, other.url} {
		if err := pingAt(t.Context(), copied, url, "networkpolicies"); !apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), "another machine") {
			t.Errorf("the copy asks, and hears %v", err)
		}
	}
	if err := copied.Renew(t.Context()); !apierrors.IsUnauthorized(err) || !copied.Status().Refused {
		t.Errorf("the copy renews, and hears %v; %+v", err, copied.Status())
	}
	if again, err := enroll.Open(dir, enroll.Options{}); err != nil || pingAt(t.Context(), again, s.url, "networkpolicies") != nil {
		t.Errorf("after a restart: %v", err)
	}
}

// What was revoked is refused, and what it had open ends.
func TestRevocation(t *testing.T) {
	s := newSite(t)
	for _, tt := range []struct {
		name, what string
		end        func(name string) error
	}{
		{"by-identity", "the AgentIdentity is deleted", func(name string) error {
			return s.dyn.Resource(identities).Namespace(s.ns).Delete(t.Context(), name, metav1.DeleteOptions{})
		}},
		{"by-node", "the ExternalNode is deleted", func(name string) error {
			return s.dyn.Resource(externalNodes).Namespace(s.ns).Delete(t.Context(), name, metav1.DeleteOptions{})
		}},
		{"by-join", "another machine joins", func(name string) error {
			_, err := enroll.Join(t.Context(), s.request(s.token(name, time.Hour), filepath.Join(t.TempDir(), name)), enroll.Options{})
			return err
		}},
	} {
		id := s.join(tt.name)
		w := openWatch(t, id, "networkpolicies")
		if _, err := w.event(); err != nil {
			t.Fatalf("%s: before: %v", tt.what, err)
		}
		if err := tt.end(tt.name); err != nil {
			t.Fatalf("%s: %v", tt.what, err)
		}
		select {
		case <-w.ended:
		case <-time.After(time.Minute):
			t.Errorf("%s, and a watch goes on", tt.what)
		}
		planetest.Eventually(t, tt.what, func(ctx context.Context) error {
			if err := ping(ctx, id, "networkpolicies"); !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("heard %v", err)
			}
			return nil
		})
		if err := id.Renew(t.Context()); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s, and it renews: %v", tt.what, err)
		}
	}
	// A machine that is made anew under the name is another one.
	s.machine("by-node")
	gone, err := enroll.NewToken(s.ns, "by-node")
	if err != nil {
		t.Fatal(err)
	}
	_, err = enroll.Join(t.Context(), s.request(gone, filepath.Join(t.TempDir(), "x")), enroll.Options{})
	refusedWith(t, "a forged token", err, "none like it")
	if n := len(s.identity("by-node").Status.Keys); n != 1 {
		t.Fatalf("%d keys are listed, want that the identity is still there", n)
	}
}

// An ExternalNode that is made anew does not bring back who was revoked with the former one.
func TestAnotherMachineOfTheName(t *testing.T) {
	s := newSite(t)
	id := s.join("a")
	if err := ping(t.Context(), id, "networkpolicies"); err != nil {
		t.Fatal(err)
	}
	if err := s.dyn.Resource(externalNodes).Namespace(s.ns).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.machine("a")
	planetest.Eventually(t, "the former machine is refused", func(ctx context.Context) error {
		if err := ping(ctx, id, "networkpolicies"); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("heard %v", err)
		}
		return nil
	})
	again := s.request(s.token("a", time.Hour), filepath.Join(t.TempDir(), "again"))
	if _, err := enroll.Join(t.Context(), again, enroll.Options{}); err != nil {
		t.Errorf("to join by a new token: %v", err)
	}
}

// A certificate that has ended ends what is open, and is believed no more.
func TestCertificatesEnd(t *testing.T) {
	t.Parallel()
	e := planetest.Start(t)
	e.ApplyCRDs(t, "../../deploy/crd")
	s := startSite(t, e, e.Namespace(t), identity.Options{Life: 10 * time.Second}) // in which a slow machine has joined and begun to watch
	id := s.join("a")
	w := openWatch(t, id, "networkpolicies")
	if _, err := w.event(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.ended:
	case <-time.After(time.Minute):
		t.Error("a watch goes on when its certificate has ended")
	}
	planetest.Eventually(t, "the end", func(ctx context.Context) error {
		if err := ping(ctx, id, "networkpolicies"); !apierrors.IsUnauthorized(err) || !strings.Contains(err.Error(), "was good until") {
			return fmt.Errorf("heard %v", err)
		}
		return nil
	})
	if st := id.Status(); !st.Expired {
		t.Errorf("the agent does not know: %+v", st)
	}
	if err := id.Renew(t.Context()); !apierrors.IsUnauthorized(err) {
		t.Errorf("it renews: %v", err)
	}
}

// An agent whose certificate is renewed in time goes on.
func TestCertificatesAreRenewed(t *testing.T) {
	t.Parallel()
	e := planetest.Start(t)
	e.ApplyCRDs(t, "../../deploy/crd")
	s := startSite(t, e, e.Namespace(t), identity.Options{Life: 15 * time.Second}) // of which a third is left when it is time, less the second to which ends are rounded
	id := s.join("b")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- id.Run(ctx) }()
	defer func() { cancel(); <-done }()
	seen := map[string]bool{}
	planetest.Eventually(t, "the third renewal", func(ctx context.Context) error {
		for _, k := range s.identity("b").Status.Keys {
			seen[k.Fingerprint] = true
		}
		if err := ping(ctx, id, "networkpolicies"); err != nil {
			t.Fatalf("while it renews in time: %v; %s", err, s.log)
		}
		if len(seen) < 4 {
			return fmt.Errorf("%d keys; %+v", len(seen), id.Status())
		}
		return nil
	})
}
