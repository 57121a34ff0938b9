package acceptance_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	sim "isobar.dev/sim/aws"
)

// A scenario that is the same wherever VMs are is a function of a provider, with a test for
// each. Its networks are written as those of AWS; what it says of VMs and networks by name
// is w.id, what a cloud calls them, and w.object, what their objects are called, in YAML
// "${web}".

// provider makes a world of a kind of cloud in a namespace of any API server, which has the
// CRDs.
type provider func(t *testing.T, config *rest.Config, ns, cluster string, networks ...network) *world

// world makes a world in a namespace of its own, with no controller started, and lets t run
// beside others.
func (on provider) world(t *testing.T, networks ...network) *world {
	t.Helper()
	t.Parallel()
	h := enter(t)
	w := on(t, h.env.Config(), h.env.Namespace(t), h.cluster, networks...)
	w.env = h.env
	return w
}

// onAWS is the provider AWS.
func onAWS(t *testing.T, config *rest.Config, ns, cluster string, networks ...network) *world {
	t.Helper()
	return worldOn(t, config, ns, cluster, estate(networks...))
}

// onAzure is the provider Azure. What users let pass there is everything, as if each network
// were wide.
func onAzure(t *testing.T, config *rest.Config, ns, cluster string, networks ...network) *world {
	t.Helper()
	v := vnets(networks)
	return azureWorldOn(t, config, ns, cluster, azureEstate(v...), atOnce, v...)
}

// vnets are networks as Azure has them.
func vnets(networks []network) []vnet {
	out := make([]vnet, len(networks))
	for i, n := range networks {
		out[i] = vnet{name: n.id, private: n.private, number: n.number, ipv6: n.ipv6, pods: n.pods}
		if n.region == region2 {
			out[i].location = location2
		}
		for _, m := range n.vms {
			tags := map[string]string{"Name": m.name}
			maps.Copy(tags, m.tags)
			out[i].vms = append(out[i].vms, azureVM{name: m.name, role: m.role, tags: tags, power: m.state, nics: 1 + len(m.more)})
		}
		if n.peered {
			for _, other := range networks {
				if other.peered && other.id != n.id {
					out[i].peers = append(out[i].peers, other.id)
				}
			}
		}
	}
	return out
}

// cloud is the simulated one of a world, in words that are the same for all.
type cloud interface {
	provider() string // as the name of the account
	regions() (one, two string)
	object(id string) string // what the objects of a resource are called
	verdicts([]sim.Flow) []sim.Result

	state() any                  // all that there is
	attached() map[string]string // what every interface has, and its tags: what has to be as before in the end
	ours() []string              // the names of groups with our mark
	owners() []string            // whose marks these have, each once
	ports() []string             // of the rules of these, as "22" or "22-80"
	edit(vm string, f func(*labels)) error

	calls() map[string]int // by what is called, since the last ResetCalls
	written() []string     // of these the calls that changed something, or tried to
	ResetCalls()

	slow() error                         // makes writes take their time
	refuse(call string, count int) error // with an internal error
	ClearFaults(ids ...string)
}

// labels are what edit changes of a VM.
type labels struct {
	tags  map[string]string
	state string // empty leaves it
}

// awsCloud is the cloud of a world of AWS.
type awsCloud struct{ *sim.Cloud }

func (c awsCloud) provider() string           { return "aws" }
func (c awsCloud) regions() (one, two string) { return region1, region2 }
func (c awsCloud) object(id string) string    { return id }
func (c awsCloud) state() any                 { return c.Estate() }

func (c awsCloud) verdicts(flows []sim.Flow) []sim.Result {
	var out []sim.Result
	for _, v := range c.ReachAll(flows) {
		out = append(out, v.Result)
	}
	return out
}

// attached has the groups of users by ID and ours by name.
func (c awsCloud) attached() map[string]string {
	out := map[string]string{}
	for _, a := range c.Estate().Accounts {
		for _, r := range a.Regions {
			for _, i := range r.Instances {
				for _, n := range i.Interfaces {
					out[n.ID] = fmt.Sprint(slices.Sorted(slices.Values(n.Groups)), n.Tags)
				}
			}
		}
	}
	return out
}

func (c awsCloud) groups() []*sim.Group {
	var out []*sim.Group
	for _, a := range c.Estate().Accounts {
		for _, r := range a.Regions {
			out = append(out, r.Groups...)
		}
	}
	return out
}

// marked returns our groups.
func (c awsCloud) marked() []*sim.Group {
	return slices.DeleteFunc(c.groups(), func(g *sim.Group) bool { return g.Tags["isobar.dev/cluster"] == "" })
}

func (c awsCloud) ours() []string {
	var out []string
	for _, g := range c.marked() {
		out = append(out, g.Name)
	}
	return out
}

func (c awsCloud) owners() []string {
	var out []string
	for _, g := range c.marked() {
		out = append(out, g.Tags["isobar.dev/cluster"])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (c awsCloud) ports() []string {
	var out []string
	for _, g := range c.marked() {
		for _, r := range g.Rules {
			if r.From == r.To {
				out = append(out, fmt.Sprint(r.From))
			} else {
				out = append(out, fmt.Sprint(r.From, "-", r.To))
			}
		}
	}
	return out
}

func (c awsCloud) edit(vm string, f func(*labels)) error {
	return c.Edit(func(e *sim.Estate) {
		for _, a := range e.Accounts {
			for _, r := range a.Regions {
				for _, i := range r.Instances {
					if i.ID == vm {
						l := labels{i.Tags, i.State}
						f(&l)
						i.Tags, i.State = l.tags, l.state
					}
				}
			}
		}
	})
}

func (c awsCloud) calls() map[string]int {
	out := map[string]int{}
	for _, x := range c.Calls().Counts {
		out[x.Action] += x.Calls
	}
	return out
}

func (c awsCloud) written() []string {
	var out []string
	for _, x := range c.Calls().Writes {
		out = append(out, fmt.Sprintf("%s %v", x.Action, x.Params))
	}
	return out
}

func (c awsCloud) slow() error {
	_, err := c.AddFault(sim.Fault{Kind: sim.FaultLatency, Action: "*e*", Latency: sim.Duration(50 * time.Millisecond)})
	return err
}

func (c awsCloud) refuse(call string, count int) error {
	_, err := c.AddFault(sim.Fault{Kind: sim.FaultError, Code: "InternalError", Action: call, Count: count})
	return err
}
