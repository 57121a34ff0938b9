package main

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	simlab "isobar.dev/sim/lab"
)

// The tables of Antrea's policies with a VM for each Pod: an ExternalEntity with the Pod's labels, selected by
// externalEntitySelector, whose agent has a kernel of its own.
func TestConformanceByPacketsOfVMs(t *testing.T) {
	if err := simlab.Missing(); err != nil {
		t.Skip(err)
	}
	dir := conformanceDir(t)
	for _, name := range []string{"antrea-v4", "antrea-v6"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachines(t, 15)
			steps, left := 0, map[string]int{}
			eachConformanceStep(t, filepath.Join(dir, name+".jsonl"), func(id string, s *conformanceStep) {
				if why := s.makeVMs(t); why != "" {
					left[why]++
					return
				}
				m.step(id, s)
				steps++
			})
			t.Logf("%d steps, %d packets of %d flows judged; of %d flows an end has no address; steps left out: %v", steps, m.judged, m.asked, m.nowhere, left)
			if steps == 0 || m.judged == 0 {
				t.Fatal("no packet was judged")
			}
		})
	}
}

// makeVMs makes the Pods of a step VMs with an agent, and its policies those of VMs, or says why
// that would be another policy.
func (s *conformanceStep) makeVMs(t *testing.T) (whyNot string) {
	t.Helper()
	var policies []json.RawMessage
	put := func(object any) {
		b, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, b)
	}
	for _, p := range s.Policies {
		var object map[string]any
		if err := json.Unmarshal(p, &object); err != nil {
			t.Fatal(err)
		}
		if object["apiVersion"] != "crd.antrea.io/v1beta1" {
			return "there are policies that are of Pods alone"
		}
		if whyNot = ofVMs(object["spec"]); whyNot != "" {
			return whyNot
		}
		put(object)
	}
	for _, p := range s.Pods {
		if p.HostNetwork || p.IP == "" || p.Phase != "" && p.Phase != "Running" {
			return "a Pod is not like a VM"
		}
		var ports []any
		for _, port := range p.Ports {
			ports = append(ports, map[string]any{"name": port["name"], "port": port["containerPort"], "protocol": port["protocol"]})
		}
		put(map[string]any{"apiVersion": "crd.antrea.io/v1alpha2", "kind": "ExternalEntity", "metadata": map[string]any{"namespace": p.Namespace, "name": p.Name, "labels": p.Labels},
			"spec": map[string]any{"externalNode": p.Name, "endpoints": []any{map[string]any{"ip": p.IP}}, "ports": ports}})
		s.Externals = append(s.Externals, struct{ Name, IP string }{p.Namespace + "/" + p.Name, p.IP})
	}
	s.Pods, s.Policies, s.Explain = nil, policies, nil
	return ""
}

// ofVMs makes the selectors of Pods in a spec those of ExternalEntities.
func ofVMs(x any) (whyNot string) {
	switch x := x.(type) {
	case []any:
		for _, y := range x {
			if whyNot = ofVMs(y); whyNot != "" {
				return whyNot
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(x)) {
			switch key {
			case "serviceReference", "toServices", "serviceAccount", "nodeSelector":
				return "a rule by " + key + " is of Pods alone"
			}
			if whyNot = ofVMs(x[key]); whyNot != "" {
				return whyNot
			}
		}
		_, inNamespaces := x["namespaces"].(map[string]any)
		pods, byPods := x["podSelector"]
		if _, bySelector := x["namespaceSelector"]; byPods || bySelector || inNamespaces {
			if !byPods {
				pods = map[string]any{}
			}
			delete(x, "podSelector")
			x["externalEntitySelector"] = pods
		}
	}
	return ""
}
