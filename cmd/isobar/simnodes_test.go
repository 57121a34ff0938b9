package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestSimNodesFlags(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--agents 0", "--agents 0: want 1 or more"},
		{"--agents 100001", "at most 100000"},
		{"--reach 0", "--reach 0"},
		{"--changes -1", "--changes -1"},
		{"-o wide", "-o wide: want table or json or yaml"},
		{"--identity root", "--identity root"},
		{"--change node", "--change node"},
		{"--nodes n1 --account antrea-agent", "want namespace/name"},
		{"--server-pid 1 --server-metrics http://127.0.0.1:1/metrics", "want one of them"},
		{"--kubeconfig /nowhere", "kubeconfig"},
		{"more", "unknown command"},
	} {
		var out, errOut bytes.Buffer
		if status := run(strings.Fields("sim nodes "+tt.args), nil, &out, &errOut); status != 1 || !strings.Contains(errOut.String(), tt.want) {
			t.Errorf("sim nodes %s = %d, %s; want 1 and %q", tt.args, status, &errOut, tt.want)
		}
	}
}

// testSimNodes loads an `isobar up` with agents.
func testSimNodes(t *testing.T, u *up) {
	kubeconfig := []string{"sim", "nodes", "--kubeconfig", u.plane.Kubeconfig(), "--quiet", "200ms", "-o", "json"}
	for _, args := range [][]string{
		{"--agents", "12", "--reach", "5", "--changes", "6", "--direct"},
		{"--agents", "12", "--reach", "5", "--changes", "6", "--identity", "impersonate", "--change", "policy", "--per-connection", "6", "--hold", "100ms"},
	} {
		var out, errOut bytes.Buffer
		if status := run(append(kubeconfig[:len(kubeconfig):len(kubeconfig)], args...), nil, &out, &errOut); status != 0 {
			t.Errorf("sim nodes %v = %d\n%s%s", args, status, &out, &errOut)
			continue
		}
		var got nodesReport
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%v: %s", err, &out)
		}
		// Each has its policy, the group that it applies to, and that of its peers; groups are of 5, 5 and 2 Nodes.
		if got.Agents != 12 || got.Initial.Events != 36 || got.Initial.Agents != 12 || got.Quiet.Events != 0 || len(got.Check.Wrong) != 0 {
			t.Errorf("sim nodes %v: %s", args, &out)
		}
		// Of every second Node: 0, 2, 4, 6, 8 and 10.
		if c := got.Changes; c.N != 6 || c.Told != 5+5+5+5+5+2 {
			t.Errorf("sim nodes %v: changes %+v", args, c)
		}
		if c := got.Reconnect; c.Equal != 36 || c.Unequal != 0 || c.After != 0 || c.Agents != 12 {
			t.Errorf("sim nodes %v: reconnect %+v", args, c)
		}
		connections := int64(24) // one each, and one again
		if slices.Contains(args, "--per-connection") {
			connections = 4
		}
		if got.Wire.Connections != connections || got.Wire.Odd != 0 || got.Wire.Lost != 36 {
			t.Errorf("sim nodes %v: wire %+v, want %d connections", args, got.Wire, connections)
		}
	}
	testSimNodesInterrupted(t, u, kubeconfig)
}

// Interrupted, it takes away what it has made.
func testSimNodesInterrupted(t *testing.T, u *up, args []string) {
	client, err := kubernetes.NewForConfig(u.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out, progress output
	cmd := root()
	cmd.SetArgs(append(args[:len(args):len(args)], "--agents", "3", "--hold", "1h"))
	cmd.SetOut(&out)
	cmd.SetErr(&progress)
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	for end := time.Now().Add(5 * time.Minute); !strings.Contains(progress.String(), "watching for"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not watch:\n%s", &progress)
		}
	}
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("interrupted, it ended with %v", err)
	}
	if out.String() != "" {
		t.Errorf("interrupted, it printed %s", &out)
	}
	namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range namespaces.Items {
		if strings.HasPrefix(ns.Name, "isobar-sim-nodes-") && ns.DeletionTimestamp == nil {
			t.Errorf("the namespace %s was left", ns.Name)
		}
	}
	roles, err := client.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range roles.Items {
		if strings.HasPrefix(r.Name, "isobar-sim-nodes-") {
			t.Errorf("the ClusterRole %s was left", r.Name)
		}
	}
}
