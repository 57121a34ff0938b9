package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

// secrets watches the Secrets that accounts name, each by itself: the right to
// read these is all that is needed.
type secrets struct {
	client  rest.Interface
	changed func(account types.NamespacedName)

	mu      sync.Mutex
	watched map[types.NamespacedName]*watchedSecret
	of      map[types.NamespacedName]types.NamespacedName // by account
}

type watchedSecret struct {
	mirror *mirror[map[string][]byte]
	stop   context.CancelFunc
	err    error // why it cannot be read now
}

func newSecrets(client rest.Interface, changed func(types.NamespacedName)) *secrets {
	return &secrets{
		client: client, changed: changed,
		watched: map[types.NamespacedName]*watchedSecret{}, of: map[types.NamespacedName]types.NamespacedName{},
	}
}

// follow makes the account follow the Secret, and no other one; nil means none.
// The watch lives until ctx ends or no account follows it.
func (s *secrets) follow(ctx context.Context, account types.NamespacedName, secret *types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, had := s.of[account]
	if had && (secret == nil || *secret != old) {
		delete(s.of, account)
		used := false
		for _, other := range s.of {
			used = used || other == old
		}
		if !used {
			s.watched[old].stop()
			delete(s.watched, old)
		}
	}
	if secret == nil {
		return
	}
	s.of[account] = *secret
	if s.watched[*secret] != nil {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	w := &watchedSecret{stop: stop}
	key := *secret
	w.mirror = newMirror(s.client, "secrets", func(o runtime.Object) (map[string][]byte, error) {
		secret, ok := o.(*corev1.Secret)
		if !ok {
			return nil, fmt.Errorf("got a %T", o)
		}
		return secret.Data, nil
	}, func(types.NamespacedName, *map[string][]byte, *map[string][]byte) { s.tell(key) })
	w.mirror.namespaces = []string{key.Namespace}
	w.mirror.fields = fields.OneTermEqualSelector("metadata.name", key.Name).String()
	w.mirror.failed = func(err error) {
		s.mu.Lock()
		news := (w.err == nil) != (err == nil)
		w.err = err
		s.mu.Unlock()
		if news {
			s.tell(key)
		}
	}
	s.watched[key] = w
	go func() {
		go func() {
			select {
			case <-w.mirror.synced: // perhaps that there is none
				s.tell(key)
			case <-ctx.Done():
			}
		}()
		w.mirror.run(ctx)
	}()
}

func (s *secrets) tell(secret types.NamespacedName) {
	s.mu.Lock()
	var accounts []types.NamespacedName
	for account, of := range s.of {
		if of == secret {
			accounts = append(accounts, account)
		}
	}
	s.mu.Unlock()
	for _, a := range accounts {
		s.changed(a)
	}
}

// errUnknown says that nothing is known yet; there will be news.
var errUnknown = errors.New("not read yet")

// document returns the credentials that ref names, which the account follows. They are
// a JSON object; an error quotes nothing of them.
func (s *secrets) document(account types.NamespacedName, ref cloudv1alpha1.SecretReference) ([]byte, error) {
	key := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	s.mu.Lock()
	w := s.watched[key]
	var err error
	if w != nil {
		err = w.err
	}
	s.mu.Unlock()
	if w == nil {
		return nil, errUnknown
	}
	if !w.mirror.isSynced() {
		if err != nil {
			return nil, problem{"SecretUnreadable", fmt.Errorf("read secret %s: %w", key, err)}
		}
		return nil, errUnknown
	}
	data, ok := w.mirror.get(key)
	if !ok {
		return nil, problem{"SecretMissing", fmt.Errorf("secret %s is missing", key)}
	}
	value, ok := data[ref.Key]
	if !ok {
		return nil, problem{"SecretMissing", fmt.Errorf("secret %s has no key %q", key, ref.Key)}
	}
	var object map[string]any
	if json.Unmarshal(value, &object) != nil || object == nil {
		return nil, problem{"SecretMalformed", fmt.Errorf("secret %s: the value of key %q is not a JSON object", key, ref.Key)}
	}
	return value, nil
}

// problem is an error with a word for machines.
type problem struct {
	reason string
	err    error
}

func (p problem) Error() string { return p.err.Error() }
func (p problem) Unwrap() error { return p.err }

// reasonOf returns the word for machines of err, or otherwise.
func reasonOf(err error, otherwise string) string {
	var p problem
	if errors.As(err, &p) {
		return p.reason
	}
	return otherwise
}
