package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// fakeCloud is a cloud in memory: it outlives the accounts that are made of it,
// as a real one outlives controllers. It answers late, and fails when told to.
type fakeCloud struct {
	mu        sync.Mutex
	key       string // the access key that is right
	latency   time.Duration
	slow      time.Duration                // the latency of a write, besides
	writing   int                          // writes that wait for that
	networks  map[string][]cloud.Network   // by region
	vms       map[string][]cloud.VM        // by region
	down      map[string]error             // by region: all calls fail
	blind     map[string]error             // by matchID of a network: VMs of it cannot be listed
	silent    map[string]chan struct{}     // by account object: calls wait until it is closed
	waiting   int                          // calls that wait so
	refuse    map[string]error             // by network: writes fail
	nics      map[string]map[string]string // by network and NIC: what is enforced there
	marks     map[string]string            // by NIC: the account object that has written there last
	made      int                          // accounts made
	reads     map[string]int               // listings, by region
	writes    int
	refusals  []policy.Refusal                 // given by every Lower, for policies that apply
	groups    map[string][]cloud.SecurityGroup // by network
	groupsErr error
}

func newFakeCloud() *fakeCloud {
	return &fakeCloud{
		key: "right-key", latency: 2 * time.Millisecond,
		networks: map[string][]cloud.Network{}, vms: map[string][]cloud.VM{},
		down: map[string]error{}, blind: map[string]error{}, refuse: map[string]error{},
		silent: map[string]chan struct{}{}, nics: map[string]map[string]string{}, marks: map[string]string{}, groups: map[string][]cloud.SecurityGroup{}, reads: map[string]int{},
	}
}

// with changes the cloud.
func (f *fakeCloud) with(change func(*fakeCloud)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// account is a controller.Factory.
func (f *fakeCloud) account(_ context.Context, cpa *cloudv1alpha1.CloudProviderAccount, secret []byte) (cloud.Account, error) {
	var keys cloudv1alpha1.AWSCredentials
	if err := json.Unmarshal(secret, &keys); err != nil {
		return nil, err
	}
	if keys.AccessKeySecret == "" {
		return nil, errors.New("accessKeySecret is missing")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	return &fakeAccount{
		cloud: f, prefix: "aws/" + cpa.Namespace + "/" + cpa.Name, regions: slices.Sorted(slices.Values(cpa.Spec.AWSConfig.Region)),
		secret: keys.AccessKeySecret, enforcers: map[string]*plan.Syncer{},
	}, nil
}

type fakeAccount struct {
	cloud   *fakeCloud
	prefix  string
	regions []string
	secret  string

	mu        sync.Mutex
	enforcers map[string]*plan.Syncer
}

func (a *fakeAccount) Regions() []string { return a.regions }

// call is the start of every call.
func (a *fakeAccount) call(ctx context.Context, region string) error {
	a.cloud.mu.Lock()
	latency, err, right := a.cloud.latency, a.cloud.down[region], a.secret == a.cloud.key
	silent := a.cloud.silent[a.prefix[strings.LastIndex(a.prefix, "/")+1:]]
	a.cloud.mu.Unlock()
	if silent != nil {
		a.cloud.with(func(f *fakeCloud) { f.waiting++ })
		defer a.cloud.with(func(f *fakeCloud) { f.waiting-- })
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-silent:
		}
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(latency):
	}
	if !right {
		return fmt.Errorf("AuthFailure: the secret %s is wrong, RequestID: 0f0f-%d", a.secret, time.Now().UnixNano())
	}
	return err
}

func (a *fakeAccount) Networks(ctx context.Context, region string) ([]cloud.Network, error) {
	if err := a.call(ctx, region); err != nil {
		return nil, err
	}
	a.cloud.mu.Lock()
	defer a.cloud.mu.Unlock()
	a.cloud.reads[region]++
	return slices.Clone(a.cloud.networks[region]), nil
}

func (a *fakeAccount) VMs(ctx context.Context, region string, matches []cloud.Match) []cloud.VMs {
	var out []cloud.VMs
	for _, m := range matches {
		if err := a.call(ctx, region); err != nil {
			out = append(out, cloud.VMs{Err: err})
			continue
		}
		a.cloud.mu.Lock()
		answer := cloud.VMs{Err: a.cloud.blind[m.NetworkID]}
		for _, vm := range a.cloud.vms[region] {
			if answer.Err == nil && matches1(m, vm) {
				answer.VMs = append(answer.VMs, vm)
			}
		}
		a.cloud.mu.Unlock()
		out = append(out, answer)
	}
	return out
}

func matches1(m cloud.Match, vm cloud.VM) bool {
	if m.NetworkID != "" && m.NetworkID != vm.NetworkID || m.NetworkName != "" && m.NetworkName != vm.NetworkName {
		return false
	}
	return len(m.VMs) == 0 || slices.ContainsFunc(m.VMs, func(v cloud.VMMatch) bool {
		return v.ID != "" && v.ID == vm.ID || v.Name != "" && v.Name == vm.Name
	})
}

func (a *fakeAccount) SecurityGroups(ctx context.Context, region string, networks []string) ([]cloud.SecurityGroup, error) {
	if err := a.call(ctx, region); err != nil {
		return nil, err
	}
	a.cloud.mu.Lock()
	defer a.cloud.mu.Unlock()
	var out []cloud.SecurityGroup
	for _, n := range networks {
		out = append(out, a.cloud.groups[n]...)
	}
	return out, a.cloud.groupsErr
}

func (a *fakeAccount) Enforcer(region, network string) cloud.Enforcer {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := a.prefix + "/" + region + "/" + network
	if !slices.Contains(a.regions, region) {
		panic("the account does not have region " + region)
	}
	if a.enforcers[name] == nil {
		a.enforcers[name] = plan.NewSyncer(name, &fakeDriver{a, region, network})
	}
	return a.enforcers[name]
}

// fakeDriver enforces on one network. Its Object is what a NIC enforces, as text.
type fakeDriver struct {
	account         *fakeAccount
	region, network string
}

func (d *fakeDriver) Lower(rs policy.Ruleset) (map[string]string, []policy.Refusal) {
	rules := map[string]string{}
	for _, r := range rs.Rules {
		text := fmt.Sprintf("%v %v", r.Key, r.Action)
		for _, g := range rs.Groups {
			if slices.Contains(r.Groups, g.Key) {
				for _, w := range g.Workloads.All() {
					text += fmt.Sprintf(" %v", w.Addrs)
				}
			}
		}
		for _, t := range r.Traffic {
			text += " " + t.String()
		}
		rules[r.Key] = text
	}
	out := map[string]string{}
	for _, w := range rs.Workloads {
		var texts []string
		for _, key := range slices.Concat(w.Ingress, w.Egress) {
			texts = append(texts, rules[key])
		}
		for _, n := range w.Workload.Interfaces {
			if len(texts) > 0 {
				out[n.ID] = strings.Join(texts, "\n")
			}
		}
	}
	var refusals []policy.Refusal
	f := d.account.cloud
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.refusals {
		if slices.ContainsFunc(rs.Rules, func(x policy.TargetRule) bool { return x.Policy == r.Policy }) {
			r.Target = rs.Target
			refusals = append(refusals, r)
		}
	}
	return out, refusals
}

func (d *fakeDriver) Equal(have, want string) bool { return have == want }

func (d *fakeDriver) Read(ctx context.Context) (map[string]string, error) {
	if err := d.account.call(ctx, d.region); err != nil {
		return nil, err
	}
	f := d.account.cloud
	f.mu.Lock()
	defer f.mu.Unlock()
	have := maps.Clone(f.nics[d.network])
	maps.DeleteFunc(have, func(nic, _ string) bool { by, ok := f.marks[nic]; return ok && by != d.account.prefix })
	return have, nil
}

func (d *fakeDriver) Apply(ctx context.Context, changes []plan.Change[string]) error {
	f := d.account.cloud
	var errs []error
	for _, c := range changes {
		f.mu.Lock()
		slow := f.slow
		f.writing++
		f.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(slow):
		}
		f.with(func(f *fakeCloud) { f.writing-- })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := d.account.call(ctx, d.region)
		f.mu.Lock()
		if err == nil {
			err = f.refuse[d.network]
		}
		if err != nil {
			errs = append(errs, &plan.ChangeError{Key: c.Key, Err: err})
			f.mu.Unlock()
			continue
		}
		f.writes++
		f.marks[c.Key] = d.account.prefix
		if f.nics[d.network] == nil {
			f.nics[d.network] = map[string]string{}
		}
		if c.Want == nil {
			delete(f.nics[d.network], c.Key)
		} else {
			f.nics[d.network][c.Key] = *c.Want
		}
		f.mu.Unlock()
	}
	return errors.Join(errs...)
}
