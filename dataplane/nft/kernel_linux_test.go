package nft_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"isobar.dev/compile"
	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// routable returns the probes that a router forwards, each once.
func routable(list []probe) []probe {
	return slices.DeleteFunc(list, func(p probe) bool { return !canRoute(p.From.Addr) || !canRoute(p.To.Addr) })
}

// common returns probes of which two worlds say the same, and say it for certain.
func common(a, b policy.Snapshot, flows []policy.Flow) []probe {
	var out []probe
	_, unclear := nft.Lower(place(a), ruleset(a))
	_, more := nft.Lower(place(b), ruleset(b))
	if slices.ContainsFunc(append(unclear, more...), func(r policy.Refusal) bool { return r.Reason == policy.RefusedPeers }) {
		return nil
	}
	before := probes(a, flows)
	for _, p := range routable(probes(b, flows)) {
		for _, q := range before {
			if p.Flow == q.Flow && p.want == q.want && len(p.needs)+len(q.needs) == 0 && !isSilent(p.Flow) {
				out = append(out, p)
				break
			}
		}
	}
	return out
}

// The kernel does with packets what Evaluate says, wherever a walk leads, and, while it is
// changed, what both the old and the new world say.
func TestKernelIsEvaluate(t *testing.T) {
	r := newRouter(t)
	y := plan.NewSyncer("", r.driver)
	asked, odd := 0, 0
	actions := map[policy.Action]int{}
	for seed := range policytest.Seeds(t, 100) {
		rnd := policytest.Rand(seed)
		var before policy.Snapshot
		for step, s := range policytest.Walk(rnd, policytest.World(rnd, 4+rnd.IntN(10)), 4) {
			s = onNode(s)
			end := func() error { return nil }
			if step > 0 {
				end = r.insist(common(before, s, policytest.Flows(rnd, s, 60)))
			}
			report := r.sync(y, s)
			if err := end(); err != nil {
				t.Fatalf("seed %d, on the way to step %d: %v\n%s\n%s", seed, step, err, policytest.Print(before), policytest.Print(s))
			}
			before = s
			list := routable(probes(s, policytest.Flows(rnd, s, 100)))
			for i, p := range list {
				if p.want == policy.Reject && isSilent(p.Flow) {
					list[i].want = policy.Drop
				}
			}
			for i, got := range r.ask(list) {
				p := list[i]
				actions[p.want]++
				asked++
				if got == p.want {
					continue
				}
				if isOdd(p, got, report.Refusals) {
					odd++
					continue
				}
				t.Fatalf("seed %d, step %d: %+v: %v\n%s", seed, step, p, got, policytest.Print(s))
			}
			r.forget()
		}
	}
	t.Logf("%d packets, %d denied otherwise or more; %v", asked, odd, actions)
	if asked < 100*odd || actions[policy.Drop] < asked/10 || actions[policy.Reject] < asked/100 {
		t.Error("the worlds are not telling")
	}
}

// isSilent says whether nobody is told that the kernel has rejected f: ICMP says nothing of
// errors of ICMP, which types below 128 are in IPv6.
func isSilent(f policy.Flow) bool {
	return f.Protocol == policy.ICMP && f.To.Addr.Is6() && f.ICMPType < 128
}

// What a Driver keeps from one Ruleset to the next changes nothing of what it makes.
func TestDriverLowersAsLower(t *testing.T) {
	reused, again := 0, 0
	for seed := range policytest.Seeds(t, 15) {
		rnd := policytest.Rand(seed)
		var p nft.Place
		d := nft.NewDriver(nft.Config{Place: func() nft.Place { return p }})
		have := map[string]nft.Object{}
		engine := compile.NewEngine()
		var last policy.Ruleset
		for step, s := range policytest.Walk(rnd, policytest.World(rnd, 20+rnd.IntN(20)), 20) {
			s = onNode(s)
			p = place(s)
			engine.Update(s)
			rs, _ := engine.Ruleset(target)
			rs.Target = target
			keep(&rs, last)
			last = rs
			want, refusals := nft.Lower(p, rs)
			before := d.Lowering()
			got, told := d.Lower(rs)
			if before != nil && d.Lowering() == before {
				again++
			}
			if dump(got) != dump(want) || !reflect.DeepEqual(refusals, told) {
				t.Fatalf("seed %d, step %d:\n%s\n%s", seed, step, dump(got), dump(want))
			}
			for _, c := range plan.Diff(have, got, d.Equal) {
				if c.Want == nil || c.Want.Set == nil {
					continue
				}
				add, gone := nft.Changed(c)
				full, fullGone := nft.Difference(c.Have, c.Want)
				if !slices.Equal(add, full) || !slices.Equal(gone, fullGone) {
					t.Fatalf("seed %d, step %d: %s: +%q -%q, want +%q -%q", seed, step, c.Key, add, gone, full, fullGone)
				}
				if nft.IsDerived(c) {
					reused++
				}
			}
			for key, o := range got {
				if h, ok := have[key]; ok && d.Equal(h, o) != (text(h) == text(o)) {
					t.Fatalf("seed %d, step %d: Equal of %s is wrong", seed, step, key)
				}
			}
			have = got
		}
	}
	t.Logf("%d sets were made of others; %d times only groups had other members", reused, again)
	if reused < 20 || again < 20 {
		t.Error("the walks are not telling")
	}
}

// keep makes lists of rs those of last that are equal, as a source keeps what is not changed.
func keep(rs *policy.Ruleset, last policy.Ruleset) {
	if reflect.DeepEqual(rs.Rules, last.Rules) {
		rs.Rules = last.Rules
	}
	if reflect.DeepEqual(rs.Workloads, last.Workloads) {
		rs.Workloads = last.Workloads
	}
	for i := range rs.Groups {
		for _, g := range last.Groups {
			if g.Key == rs.Groups[i].Key && maps.Equal(maps.Collect(g.Workloads.All()), maps.Collect(rs.Groups[i].Workloads.All())) {
				rs.Groups[i].Workloads = g.Workloads
			}
		}
	}
}

func text(o nft.Object) string { return dump(map[string]nft.Object{"": o}) }

// Addresses that several members of a group have stay until the last one goes.
func TestSharedMembers(t *testing.T) {
	d := nft.NewDriver(nft.Config{})
	rs := many(1, 2, 2, 20)
	var base []*policy.Workload
	for i := range 20 {
		base = append(base, member(0, i))
	}
	same := *base[3]
	same.ID = "pod/far/9"
	again := *base[3]
	again.Addrs = base[4].Addrs // moves to another's address, under its old ID
	for i, list := range [][]*policy.Workload{
		base,
		append(slices.Clone(base), &same), // a second one with the address
		base,
		append(slices.Clone(base), &same),
		slices.Concat(base[:3], base[4:], []*policy.Workload{&same}), // the first one goes
		slices.Concat(base[:3], base[4:]),
		slices.Concat(base[:3], []*policy.Workload{&again}, base[4:]),
		base,
		nil,
		base,
	} {
		rs.Groups = []policy.Members{{Key: rs.Groups[0].Key, Workloads: policy.ByID(list...)}, rs.Groups[1]}
		want, _ := nft.Lower(nft.Place{}, rs)
		if got, _ := d.Lower(rs); dump(got) != dump(want) {
			t.Errorf("step %d: %s\nwant %s", i, dump(got), dump(want))
		}
	}
}

// What is other than the members of a group makes the table anew, when all else is what it was, too.
func TestDriverSeesEachPart(t *testing.T) {
	first := many(2, 2, 2, 5)
	named := first.Rules[0]
	named.Key, named.Direction, named.Traffic = policy.RuleKey(named.Policy, policy.Egress, 0, ""), policy.Egress, []policy.Traffic{{Protocol: policy.TCP, PortName: "web"}}
	first.Rules = append(first.Rules, named)
	first.Workloads[0].Egress = []string{named.Key}
	with := func(i int, w policy.Workload) []policy.Members {
		w.ID += "x"
		groups := slices.Clone(first.Groups)
		groups[i].Workloads = groups[i].Workloads.Put(w.ID, &w)
		return groups
	}
	far, port, clash := *member(1, 77), *member(0, 78), *member(0, 2)
	far.Network, clash.Network = "vpc-1", "vpc-1"
	port.Ports = []policy.NamedPort{{Name: "web", Protocol: policy.TCP, Port: 8080}}
	for name, change := range map[string]func(*policy.Ruleset, *nft.Place){
		"a rule": func(rs *policy.Ruleset, _ *nft.Place) {
			rs.Rules = slices.Clone(rs.Rules)
			rs.Rules[1].Action = policy.Drop
		},
		"whom rules apply to": func(rs *policy.Ruleset, _ *nft.Place) {
			rs.Workloads = slices.Clone(rs.Workloads)
			rs.Workloads[1].Ingress = rs.Workloads[1].Ingress[:1]
		},
		"the machine": func(_ *policy.Ruleset, p *nft.Place) { p.JudgeProbes = true },
		"which group a list is of": func(rs *policy.Ruleset, _ *nft.Place) {
			rs.Groups = slices.Clone(rs.Groups)
			rs.Groups[0].Key = "pod ns=a"
		},
		"a member of another network": func(rs *policy.Ruleset, _ *nft.Place) { rs.Groups = with(1, far) },
		"another network's address":   func(rs *policy.Ruleset, _ *nft.Place) { rs.Groups = with(1, clash) },
		"a member in another network": func(rs *policy.Ruleset, _ *nft.Place) {
			moved := *member(1, 3)
			moved.Network, moved.Addrs = "vpc-1", clash.Addrs
			rs.Groups = slices.Clone(rs.Groups)
			rs.Groups[1].Workloads = rs.Groups[1].Workloads.Put(moved.ID, &moved)
		},
		"a member with a port of a name": func(rs *policy.Ruleset, _ *nft.Place) { rs.Groups = with(0, port) },
		"a group less":                   func(rs *policy.Ruleset, _ *nft.Place) { rs.Groups = rs.Groups[:1] },
		"a member":                       func(rs *policy.Ruleset, _ *nft.Place) { rs.Groups = with(1, *member(1, 79)) },
	} {
		var p nft.Place
		d := nft.NewDriver(nft.Config{Place: func() nft.Place { return p }})
		got, _ := d.Lower(first)
		clear(got) // which is whose it is
		next := first
		change(&next, &p)
		for i, rs := range []policy.Ruleset{next, first, next} {
			want, refusals := nft.Lower(p, rs)
			if got, told := d.Lower(rs); dump(got) != dump(want) || !reflect.DeepEqual(refusals, told) {
				t.Errorf("%s, step %d:\n%s\nwant\n%s", name, i, dump(got), dump(want))
			}
		}
	}
}
