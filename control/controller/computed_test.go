package controller_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/control/controller"
	"isobar.dev/source/antrea"
)

// another is a small controller that tells the VMs of clouds what to enforce: what
// each watch begins with is text, and a change ends all watches.
type another struct {
	mu      sync.Mutex
	objects map[string][]string // by resource
	changed chan struct{}
	reports map[string]controlplanev1beta2.NetworkPolicyNodeStatus // by path
}

func (a *another) set(objects map[string][]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects = objects
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *another) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/apis/controlplane.antrea.io/v1beta2/")
	a.mu.Lock()
	if r.Method == http.MethodPost {
		defer a.mu.Unlock()
		var envelope runtime.Unknown
		var status controlplanev1beta2.NetworkPolicyStatus
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) < 4 || envelope.Unmarshal(body[4:]) != nil || status.Unmarshal(envelope.Raw) != nil {
			http.Error(w, "no report", http.StatusBadRequest)
			return
		}
		a.reports[name] = status.Nodes[0]
		w.WriteHeader(http.StatusCreated)
		return
	}
	objects, changed := a.objects[name], a.changed
	a.mu.Unlock()
	if r.URL.Query().Get("fieldSelector") != "nodeName=nephe-controller" {
		http.Error(w, "of whom?", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for _, text := range objects {
		fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, text)
	}
	fmt.Fprint(w, `{"type":"BOOKMARK","object":{}}`)
	w.(http.Flusher).Flush()
	select {
	case <-changed:
	case <-r.Context().Done():
	}
}

// What another controller computes is what clouds enforce, whatever policies our API server has;
// it is told how that goes, and nothing is written before it has answered.
func TestComputedElsewhere(t *testing.T) {
	e := newEnv(t)
	e.estate()
	a := &another{changed: make(chan struct{}), reports: map[string]controlplanev1beta2.NetworkPolicyNodeStatus{}}
	server := httptest.NewUnstartedServer(a)
	t.Cleanup(server.Close) // after the controller's end, which ends the watches
	source, err := antrea.New(antrea.Fixed(&rest.Config{Host: "http://" + server.Listener.Addr().String()}), "nephe-controller", antrea.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const kind = `"apiVersion":"controlplane.antrea.io/v1beta2"`
	entity := func(network string, n int) string {
		return fmt.Sprintf(`{"externalEntity":{"namespace":%q,"name":%q},"ips":["CgAAAQ=="]}`, e.ns, entityName(network, n))
	}
	state := func(generation, port int) map[string][]string {
		return map[string][]string{
			"networkpolicies": {fmt.Sprintf(`{"kind":"NetworkPolicy",%s,"metadata":{"name":"u","uid":"u","generation":%d},"appliedToGroups":["db"],"priority":5,"tierPriority":250,
				"sourceRef":{"type":"AntreaNetworkPolicy","namespace":%q,"name":"theirs","uid":"u"},
				"rules":[{"direction":"In","action":"Allow","from":{"addressGroups":["web"]},"services":[{"protocol":"TCP","port":%d}]}]}`, kind, generation, e.ns, port)},
			"appliedtogroups": {fmt.Sprintf(`{"kind":"AppliedToGroup",%s,"metadata":{"name":"db"},"groupMembers":[%s]}`, kind, entity("vpca", 2))},
			"addressgroups":   {fmt.Sprintf(`{"kind":"AddressGroup",%s,"metadata":{"name":"web"},"groupMembers":[%s,%s]}`, kind, entity("vpca", 1), entity("vpcb", 1))},
		}
	}
	for _, list := range state(1, 1) {
		if !json.Valid([]byte(list[0])) {
			t.Fatal(list[0])
		}
	}
	a.objects = state(1, 5432)
	e.o.Computed = source
	c := e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("ours", "web", 80))
	e.eventually("the inventory", e.entityHas("vpca", 2, "nephe.antrea.io/kind", "virtualmachine"))
	e.quietly("nothing is enforced before the controller has answered", all(e.has("vpca", 2, ""), e.has("vpca", 1, "")))
	server.Start()
	e.eventually("what it says is enforced", e.has("vpca", 2, "TCP/5432"))
	e.quietly("and nothing of ours", all(e.has("vpca", 1, ""), e.has("vpcb", 1, "")))
	reported := func(generation int64) func() string {
		return func() string {
			a.mu.Lock()
			defer a.mu.Unlock()
			if got := a.reports["networkpolicies/u/status"]; got.Generation != generation || got.NodeName != "nephe-controller" || got.RealizationFailure {
				return fmt.Sprintf("reported %+v; want generation %d", got, generation)
			}
			return ""
		}
	}
	e.eventually("it is told", reported(1))
	a.set(state(2, 5433))
	e.eventually("what it says now is enforced", e.has("vpca", 2, "TCP/5433"))
	e.eventually("it is told", reported(2))
	// That controller does not know what is staged: it is enforced, and told.
	theirs := e.allow("theirs", "db", 5433)
	theirs.Annotations = map[string]string{"isobar.dev/mode": "Stage"}
	e.create(theirs)
	e.eventually("it is told that it is enforced", e.hasEvent("theirs", "does not know isobar.dev/mode and has it enforced on aws/"+e.ns+"/acct/us-east-1/vpca"))
	e.quietly("it is enforced", e.has("vpca", 2, "TCP/5433"))
	if _, err := c.Preview(t.Context(), nil, controller.PreviewOptions{}); err != controller.ErrComputedElsewhere {
		t.Errorf("a preview of what another computes: %v", err)
	}
	a.set(nil)
	e.eventually("nothing is enforced", all(e.has("vpca", 2, ""), e.has("vpca", 1, "")))
}
