package vm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/source/antrea"
)

// Status is what an agent says of itself.
type Status = runtimev1alpha1.VirtualMachineRuntimeInfoStatus

const (
	reportEvery = 10 * time.Second
	reportPause = 500 * time.Millisecond // between two
	reportRetry = 2 * time.Second
	reportMost  = 10 * time.Second // that one may take
	errorMost   = 1024             // bytes of an error
)

// report tells the server how this machine is, until ctx ends: now and then, and at once when that is another.
func (r *run) report(ctx context.Context) error {
	told, next, fails := Status{}, time.Time{}, ""
	taken, left := time.Now(), "" // when a report last was; the wish to leave that was reported last
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reportPause):
		}
		l, isLeaving := readLeaving(r.o.StateDir) // before the status: what was said before the wish is no answer to it
		now := r.Status()
		if time.Now().Before(next) && (fails != "" || reflect.DeepEqual(now, told)) && (!isLeaving || l.text == left) {
			continue
		}
		most := reportMost
		if isLeaving {
			most = leavePost
		}
		conditions, err := r.post(ctx, now, most)
		told, next, left = now, time.Now().Add(reportEvery), l.text
		was := fails
		fails = ""
		if err != nil {
			next, fails = time.Now().Add(reportRetry), err.Error()
		}
		if fails != was && fails != "" && ctx.Err() == nil {
			r.o.Log.Info("the server is told later how this machine is", "error", fails)
		}
		isAway := err != nil && time.Since(taken) >= r.o.AwayAfter
		if err == nil {
			taken = time.Now()
		}
		r.mu.Lock()
		r.refusal, r.taken = fails, taken
		r.mu.Unlock()
		if !isLeaving || now.State != runtimev1alpha1.AgentOff {
			continue
		}
		next = time.Now().Add(leaveEvery)
		switch why := ended(conditions); {
		case why != "":
			r.leave(ctx, l, why)
		case isAway:
			r.leave(ctx, l, EndedAway)
		default:
			r.heardOf(l, conditions)
		}
	}
}

// post tells the server of a Status, and returns what it thinks of the machine. Replicas that do not lead send away, and whoever comes next is another.
func (r *run) post(ctx context.Context, s Status, most time.Duration) (conditions []metav1.Condition, err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if r.o.Post != nil {
		return r.o.Post(ctx, s)
	}
	for range 4 {
		var again bool
		if conditions, again, err = r.poster.post(ctx, r.o.Namespace, r.o.Name, s); !again {
			return conditions, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil, err
}

// poster posts VirtualMachineRuntimeInfos.
type poster struct {
	endpoint antrea.Endpoint
	config   *rest.Config // of the client
	client   *http.Client
}

// answerMost bounds what is read of an answer.
const answerMost = 1 << 20

// post posts a Status. Again says that another replica might take it.
func (p *poster) post(ctx context.Context, namespace, name string, s Status) (conditions []metav1.Condition, again bool, err error) {
	if p.config == nil { // at first, and where the last try has failed: another server may be there
		config, err := p.endpoint(ctx)
		if err != nil {
			return nil, false, fmt.Errorf("find the server: %w", err)
		}
		c := rest.CopyConfig(config)
		c.Timeout = 0
		if p.client, err = rest.HTTPClientFor(c); err != nil {
			return nil, false, err
		}
		// Another host must not be shown our credentials.
		p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		p.config = config
	}
	config := p.config
	defer func() {
		if err != nil {
			utilnet.CloseIdleConnectionsFor(p.client.Transport)
			p.config = nil
		}
	}()
	hasTLS := len(config.CAData) > 0 || config.CAFile != "" || config.Insecure || config.CertFile != "" || len(config.CertData) > 0
	base, path, err := rest.DefaultServerURL(config.Host, "/apis", runtimev1alpha1.GroupVersion, hasTLS)
	if err != nil {
		return nil, false, err
	}
	base.Path = path
	body, err := json.Marshal(runtimev1alpha1.VirtualMachineRuntimeInfo{
		TypeMeta:   metav1.TypeMeta{APIVersion: runtimev1alpha1.GroupVersion.String(), Kind: "VirtualMachineRuntimeInfo"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: s,
	})
	if err != nil {
		return nil, false, err
	}
	url := base.JoinPath("namespaces", namespace, runtimev1alpha1.ResourceVirtualMachineRuntimeInfos).String()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	answer, err := p.client.Do(request)
	if err != nil {
		return nil, false, err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, answerMost))
	if answer.StatusCode >= 200 && answer.StatusCode <= 299 {
		var taken runtimev1alpha1.VirtualMachineRuntimeInfo
		if json.Unmarshal(text, &taken) != nil {
			return nil, false, nil // it is taken; nothing else is said
		}
		return taken.Status.Conditions, false, nil
	}
	var status metav1.Status
	_ = json.Unmarshal(text, &status)
	return nil, answer.StatusCode == http.StatusServiceUnavailable, fmt.Errorf("%s: %s", answer.Status, cut(status.Message))
}

// cut cuts a text to errorMost bytes.
func cut(s string) string {
	if len(s) > errorMost {
		s = s[:errorMost]
	}
	return strings.ToValidUTF8(s, "")
}

// Status returns how the machine is now.
func (r *run) Status() Status {
	a := r.agent.Status()
	s := r.about
	s.Policies, s.RealizedPolicies, s.FailedPolicies = int32(a.Policies), int32(a.Realized), int32(a.Failed)
	s.State = runtimev1alpha1.AgentEnforcing
	var why error
	switch guilty := r.watchdog.Guilty(); {
	case IsOff(r.o.StateDir), IsLeaving(r.o.StateDir): // who leaves says so before it does
		s.State, s.RealizedPolicies, s.FailedPolicies = runtimev1alpha1.AgentOff, 0, 0
	case !a.Known:
		s.State, why = runtimev1alpha1.AgentWaiting, r.unknown()
	case guilty != nil:
		s.State, why = runtimev1alpha1.AgentFailing, guilty
	case a.Err != nil:
		s.State, why = runtimev1alpha1.AgentFailing, a.Err
	case a.LastGood.IsZero():
		s.State = runtimev1alpha1.AgentWaiting // the first rules are on their way
	case a.StateErr != nil:
		why = a.StateErr
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if why == nil {
		why = r.linksErr
	}
	if why != nil {
		s.LastError = cut(why.Error())
	}
	for _, i := range r.links.Outer {
		x := runtimev1alpha1.VirtualMachineInterface{Name: i.Name, MAC: i.MAC}
		for _, a := range i.Addrs {
			x.IPs = append(x.IPs, a.String())
		}
		s.Interfaces = append(s.Interfaces, x)
	}
	if r.o.Expires != nil {
		if at := r.o.Expires(); !at.IsZero() {
			s.CertificateExpirationTime = &metav1.Time{Time: at}
		}
	}
	return s
}

// about says what does not change while an agent runs.
func about() Status {
	s := Status{AgentVersion: "unknown", StartTime: metav1.Now().Rfc3339Copy()}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		s.AgentVersion = info.Main.Version
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		s.KernelVersion = unix.ByteSliceToString(name.Release[:])
	}
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if text, err := os.ReadFile(path); err == nil {
			s.OSImage = osImage(string(text))
			break
		}
	}
	if text, err := os.ReadFile("/etc/machine-id"); err == nil {
		// As systemd asks of programs: the number itself is nobody's business.
		sum := sha256.Sum256([]byte("isobar-agent " + strings.TrimSpace(string(text))))
		s.MachineID = hex.EncodeToString(sum[:16])
	}
	return s
}

// osImage returns the name of a system from its os-release.
func osImage(text string) string {
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			name = strings.Trim(name, `"'`)
			return strings.ToValidUTF8(name[:min(len(name), 128)], "")
		}
	}
	return ""
}
