package controller_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/policy"
)

// The spine: a VM becomes an ExternalEntity, and a policy reaches its NIC.
func TestPolicyReachesTheNIC(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	t.Logf("from nothing to the NIC in %v", e.timed("db enforces the policy", func() {
		e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("db", "db", 5432))
	}, e.has("vpca", 2, "TCP/5432")))
	e.eventually("account", e.accountIs("", "Enforced", "True Enforced"))
	e.eventually("policy", e.phaseIs("db", antreav1beta1.PolicyRealized))

	t.Logf("a policy's change in %v", e.timed("new port", func() { e.setPort("db", 5433) }, e.has("vpca", 2, "TCP/5433")))
	p, err := get[antreav1beta1.NetworkPolicy](e, "db")
	if err != nil {
		t.Fatal(err)
	}
	e.delete(p)
	e.eventually("nothing is enforced", all(e.has("vpca", 2, ""), e.has("vpca", 1, ""), e.has("vpcb", 1, "")))
}

// Whatever happens to a Secret, nothing that is enforced is undone, no secret is
// shown, and all is well as soon as it is.
func TestSecret(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.account("us-east-1"), e.selector("all", everything), e.allow("db", "db", 5432))
	e.eventually("missing", e.accountIs("secret "+e.ns+"/keys is missing", "Connected", "False SecretMissing"))

	e.create(e.secret("not json right-key"))
	e.eventually("malformed", e.accountIs("is not a JSON object", "Connected", "False SecretMalformed"))

	set := func(data map[string][]byte) {
		update[corev1.Secret](e, "keys", func(s *corev1.Secret) { s.Data = data })
	}
	set(map[string][]byte{"other": []byte(rightKeys)})
	e.eventually("no such key", e.accountIs(`no key "credentials"`, "Connected", "False SecretMissing"))
	set(map[string][]byte{"credentials": []byte(`{"accessKeyId": "AKIA1234"}`)})
	e.eventually("half the keys", e.accountIs("accessKeySecret is missing", "Connected", "False Refused"))
	set(map[string][]byte{"credentials": []byte(`{"accessKeyId": "AKIA1234", "accessKeySecret": "wrong-and-secret"}`)})
	e.eventually("wrong keys", e.accountIs("region us-east-1: AuthFailure", "Inventory", "False ReadFailed"))

	set(map[string][]byte{"credentials": []byte(rightKeys)})
	e.eventually("fixed", all(e.accountIs("", "Connected", "True Connected"), e.has("vpca", 2, "5432")))

	kept := all(e.has("vpca", 2, "5432"), e.entityHas("vpca", 2, cloudv1alpha1.LabelKind, "virtualmachine"))
	set(map[string][]byte{"credentials": []byte(`{"accessKeyId": "AKIA1234", "accessKeySecret": "wrong-and-secret"}`)})
	e.eventually("rotated to wrong keys", e.accountIs("AuthFailure", "Inventory", "False ReadFailed"))
	e.quietly("nothing is undone", kept)
	secret, err := get[corev1.Secret](e, "keys")
	if err != nil {
		t.Fatal(err)
	}
	e.delete(secret)
	e.eventually("deleted", e.accountIs("is missing", "Connected", "False SecretMissing"))
	e.quietly("nothing is undone", kept)
	e.eventually("an Event says so", e.hasEvent("acct", "SecretMissing"))
	e.create(e.secret(rightKeys))
	e.eventually("back", all(e.accountIs("", "Connected", "True Connected"), kept))

	cpa, err := get[cloudv1alpha1.CloudProviderAccount](e, "acct")
	if text := fmt.Sprint(cpa); err != nil || strings.Contains(text, "wrong-and-secret") {
		t.Errorf("%v; the account shows a secret: %s", err, text)
	}
	for _, event := range e.events() {
		if strings.Contains(event, "wrong-and-secret") {
			t.Errorf("an Event shows a secret: %s", event)
		}
	}
}

// Other credentials, or another endpoint, are tried at once, however long the cloud
// keeps those before waiting.
func TestNewCredentialsDoNotWaitForTheOld(t *testing.T) {
	e := newEnv(t)
	e.estate()
	never := make(chan struct{})
	e.cloud.with(func(f *fakeCloud) { f.silent["acct"] = never })
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("all", everything), e.allow("db", "db", 5432))
	e.eventually("the cloud keeps us waiting", func() string {
		waiting := 0
		e.cloud.with(func(f *fakeCloud) { waiting = f.waiting })
		if waiting == 0 {
			return "no call waits"
		}
		return ""
	})
	e.cloud.with(func(f *fakeCloud) { delete(f.silent, "acct") })
	update[corev1.Secret](e, "keys", func(s *corev1.Secret) {
		s.Data = map[string][]byte{"credentials": []byte(strings.Replace(rightKeys, "AKIA1234", "AKIA5678", 1))}
	})
	e.eventually("the new ones work", all(e.accountIs("", "Connected", "True Connected"), e.has("vpca", 2, "5432")))
}

// Nor do they wait for a write that is under way with those of before.
func TestNewCredentialsEndTheSyncOfTheOld(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("all", everything), e.allow("db", "db", 5432))
	e.eventually("enforced", e.has("vpca", 2, "5432"))
	e.cloud.with(func(f *fakeCloud) { f.slow = time.Hour })
	e.setPort("db", 5433)
	e.eventually("a write begins", func() string {
		writing := 0
		e.cloud.with(func(f *fakeCloud) { writing = f.writing })
		if writing == 0 {
			return "nothing is written"
		}
		return ""
	})
	e.cloud.with(func(f *fakeCloud) { f.slow = 0 })
	update[corev1.Secret](e, "keys", func(s *corev1.Secret) {
		s.Data = map[string][]byte{"credentials": []byte(strings.Replace(rightKeys, "AKIA1234", "AKIA5678", 1))}
	})
	e.eventually("by the new ones", all(e.has("vpca", 2, "5433"), e.phaseIs("db", antreav1beta1.PolicyRealized)))
}

// A region or a selector that cannot be read keeps its VMs, and stops no other.
func TestUnreadableIsNotEmpty(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"),
		e.selector("a", inVPC("vpca")), e.selector("b", inVPC("vpcb")), e.allow("web", "web", 80))
	both := all(e.has("vpca", 1, "80"), e.has("vpcb", 1, "80"))
	e.eventually("both regions", both)

	e.cloud.with(func(f *fakeCloud) { f.down["us-west-2"] = errors.New("InternalError: 500") })
	e.eventually("the error names the region", e.accountIs("region us-west-2: InternalError: 500", "Inventory", "False ReadFailed"))
	e.setPort("web", 81)
	e.eventually("the other region goes on", e.has("vpca", 1, "81"))
	e.eventually("the status says where it fails", e.phaseIs("web", antreav1beta1.PolicyFailed))
	e.quietly("the region keeps what it has", all(e.has("vpcb", 1, "TCP/80"), e.entityHas("vpcb", 1, cloudv1alpha1.LabelKind, "virtualmachine")))
	e.cloud.with(func(f *fakeCloud) { delete(f.down, "us-west-2") })
	e.eventually("the region is back", all(e.has("vpcb", 1, "81"), e.accountIs("", "Inventory", "True Listed"), e.phaseIs("web", antreav1beta1.PolicyRealized)))

	e.cloud.with(func(f *fakeCloud) {
		f.blind["vpca"] = errors.New("UnauthorizedOperation")
		f.vms["us-west-2"] = append(f.vms["us-west-2"], vm("us-west-2", "vpcb", 7, map[string]string{"Role": "web"}))
	})
	e.eventually("the error names the selector", e.accountIs("selector "+e.ns+"/a: vmSelector[0]: region us-east-1: Unauth", "Inventory", "False ReadFailed"))
	e.eventually("so does the selector", e.selectorIs("a", "UnauthorizedOperation", "False ReadFailed"))
	e.eventually("the other selector goes on", all(e.has("vpcb", 7, "81"), e.selectorIs("b", "", "True Imported")))
	e.quietly("it keeps its VMs", e.has("vpca", 1, "81"))
}

// kubectl retags a VM: a tag's label that somebody else sets wins over the cloud's, and stays.
func TestRetag(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("all", everything), e.allow("db", "db", 5432))
	role := cloudv1alpha1.LabelTagPrefix + "Role"
	e.eventually("before", all(e.has("vpca", 2, "5432"), e.has("vpca", 1, ""), e.entityHas("vpca", 1, role, "web")))

	t.Logf("a retag in %v", e.timed("retagged", func() { e.label(entityName("vpca", 1), role, "db") }, e.has("vpca", 1, "5432")))
	e.quietly("the tag stays", e.entityHas("vpca", 1, role, "db"))
	e.cloud.with(func(f *fakeCloud) {
		f.vms["us-east-1"][0].State = "stopped"
		f.vms["us-east-1"][0].Tags = map[string]string{"Name": "web1", "Role": "frontend", "Team": "a"}
	})
	e.eventually("another tag comes", e.entityHas("vpca", 1, cloudv1alpha1.LabelTagPrefix+"Team", "a"))
	e.quietly("the tag stays", e.entityHas("vpca", 1, role, "db"))
	e.stop()
	e.start()
	e.quietly("also through a restart", all(e.entityHas("vpca", 1, role, "db"), e.has("vpca", 1, "5432")))

	t.Logf("and back in %v", e.timed("the cloud's tag is back", func() { e.label(entityName("vpca", 1), role, nil) },
		all(e.entityHas("vpca", 1, role, "frontend"), e.has("vpca", 1, ""))))
	e.cloud.with(func(f *fakeCloud) { f.vms["us-east-1"][0].Tags = map[string]string{"Name": "web1"} })
	e.eventually("a tag that goes in the cloud goes", e.entityLacks("vpca", 1, role))
}

// What others do to an ExternalEntity of ours is undone, and opens nothing meanwhile.
func TestEntityDrift(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("all", everything), e.allow("db", "db", 5432))
	e.eventually("before", e.has("vpca", 2, "5432"))
	name := entityName("vpca", 2)
	e.eventually("whole", func() string {
		ee, err := get[antreav1alpha2.ExternalEntity](e, name)
		if err != nil {
			return err.Error()
		}
		if got := fmt.Sprint(ee.Spec); got != "{[{10.0.0.2 } {203.0.113.2 }] [] nephe-controller}" {
			return got
		}
		return ""
	})
	e.label(name, cloudv1alpha1.LabelOwnerVM, "somebody-else")
	e.eventually("a label is put right", e.entityHas("vpca", 2, cloudv1alpha1.LabelOwnerVM, "i-vpca2"))
	update[antreav1alpha2.ExternalEntity](e, name, func(ee *antreav1alpha2.ExternalEntity) { ee.Spec.Endpoints[0].IP = "10.9.9.9" })
	e.eventually("an address is put right", func() string {
		ee, err := get[antreav1alpha2.ExternalEntity](e, name)
		if err != nil || ee.Spec.Endpoints[0].IP != "10.0.0.2" {
			return fmt.Sprint(err, ee.Spec)
		}
		return ""
	})
	before := e.cloudWrites()
	ee, err := get[antreav1alpha2.ExternalEntity](e, name)
	if err != nil {
		t.Fatal(err)
	}
	e.delete(ee)
	e.eventually("made again", func() string {
		now, err := get[antreav1alpha2.ExternalEntity](e, name)
		if err != nil {
			return err.Error()
		}
		if now.UID == ee.UID {
			return "the old one is still there"
		}
		return ""
	})
	e.quietly("enforced throughout", e.has("vpca", 2, "5432"))
	if n := e.cloudWrites() - before; n != 0 {
		t.Errorf("deleting an ExternalEntity made %d writes in the cloud; want none", n)
	}
}

// VMs that are no longer selected get their originals back, whoever was running when.
func TestSelectorNarrowed(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("web", "web", 80), e.allow("db", "db", 5432))
	e.eventually("all", all(e.has("vpca", 1, "80"), e.has("vpca", 2, "5432"), e.has("vpcb", 1, "80")))
	e.eventually("counted", e.selectorIs("all", "", "True Imported"))

	update[cloudv1alpha1.CloudEntitySelector](e, "all", func(ces *cloudv1alpha1.CloudEntitySelector) {
		ces.Spec.VMSelector = []cloudv1alpha1.VirtualMachineSelector{{VMMatch: []cloudv1alpha1.EntityMatch{{MatchName: "web1"}, {MatchID: "i-vpcb1"}}}}
	})
	e.eventually("narrowed", all(e.has("vpca", 2, ""), e.has("vpca", 1, "80"), e.has("vpcb", 1, "80"), e.noEntity("vpca", 2)))

	e.stop()
	ces, err := get[cloudv1alpha1.CloudEntitySelector](e, "all")
	if err != nil {
		t.Fatal(err)
	}
	e.delete(ces)
	e.start()
	e.eventually("deleted while nobody looked", all(e.has("vpca", 1, ""), e.has("vpcb", 1, ""), e.noEntity("vpca", 1), e.noEntity("vpcb", 1)))
}

// A restart writes nothing, to the cloud or to the API server.
func TestRestartWritesNothing(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("web", "web", 80))
	e.eventually("settled", all(e.has("vpca", 1, "80"), e.has("vpcb", 1, "80"), e.phaseIs("web", antreav1beta1.PolicyRealized),
		e.accountIs("", "Enforced", "True Enforced"), e.selectorIs("all", "", "True Imported")))
	versions := e.quiet() // a status may be written for each region
	e.stop()
	before := e.cloudWrites()
	c := e.start()
	e.eventually("settled again", func() string {
		for _, s := range c.Targets() {
			if !s.Synced {
				return fmt.Sprintf("%+v", s)
			}
		}
		if len(c.Targets()) != 2 {
			return "no targets yet"
		}
		return ""
	})
	e.quietly("nothing is written", func() string {
		if s := c.Stats(); s.EntityWrites+s.StatusWrites+s.CloudWrites > 0 || e.cloudWrites() != before {
			return fmt.Sprintf("%+v, %d cloud writes", s, e.cloudWrites()-before)
		}
		if now := e.versions(); now != versions {
			return "before " + versions + " now " + now
		}
		return ""
	})
}

// At the start nothing is undone because it is not known yet.
func TestStartWithAFailingRegion(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("a", inVPC("vpca")), e.selector("b", inVPC("vpcb")), e.allow("web", "web", 80))
	e.eventually("all", all(e.has("vpca", 1, "80"), e.has("vpcb", 1, "80"), e.entityHas("vpcb", 1, cloudv1alpha1.LabelKind, "virtualmachine")))
	e.stop()
	e.cloud.with(func(f *fakeCloud) { f.blind["vpcb"] = errors.New("RequestLimitExceeded") })
	e.start()
	e.setPort("web", 81)
	e.eventually("what is known is enforced", e.has("vpca", 1, "81"))
	e.eventually("what is not is held", e.accountIs("RequestLimitExceeded", "Enforced", "Unknown Held"))
	e.quietly("and keeps what it has", all(e.has("vpcb", 1, "TCP/80"), e.entityHas("vpcb", 1, cloudv1alpha1.LabelKind, "virtualmachine")))
	e.cloud.with(func(f *fakeCloud) { delete(f.blind, "vpcb") })
	e.eventually("until it is", all(e.has("vpcb", 1, "81"), e.accountIs("", "Enforced", "True Enforced")))
}

// An account that is deleted leaves its cloud as it was, however long that takes.
func TestAccountDeletion(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("web", "web", 80))
	e.eventually("all", all(e.has("vpca", 1, "80"), e.has("vpcb", 1, "80"), e.accountIs("", "Enforced", "True Enforced")))
	e.cloud.with(func(f *fakeCloud) { f.refuse["vpcb"] = errors.New("ServiceUnavailable") })
	cpa, err := get[cloudv1alpha1.CloudProviderAccount](e, "acct")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := get[corev1.Secret](e, "keys")
	if err != nil {
		t.Fatal(err)
	}
	e.delete(cpa)
	e.delete(secret) // as when the namespace is deleted
	e.eventually("one is restored, and the other told of", all(e.has("vpca", 1, ""), e.accountIs("ServiceUnavailable", "Restored", "False Restoring")))
	e.quietly("it stays", all(e.has("vpcb", 1, "80"), e.entityHas("vpcb", 1, cloudv1alpha1.LabelKind, "virtualmachine")))
	e.cloud.with(func(f *fakeCloud) { delete(f.refuse, "vpcb") })
	e.eventually("all is restored", all(e.has("vpcb", 1, ""), e.noEntity("vpca", 1), e.noEntity("vpcb", 1), e.noAccount))
	e.eventually("the selector says so", e.selectorIs("all", "is missing", "False AccountMissing"))
}

// An account that orphans leaves its cloud as it is.
func TestAccountOrphaned(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	cpa := e.account("us-east-1")
	cpa.Spec.DeletionPolicy = cloudv1alpha1.DeletionOrphan
	e.create(e.secret(rightKeys), cpa, e.selector("all", everything), e.allow("web", "web", 80))
	e.eventually("enforced", e.has("vpca", 1, "80"))
	before := e.cloudWrites()
	e.delete(cpa)
	e.eventually("gone", all(e.noAccount, e.noEntity("vpca", 1)))
	if n := e.cloudWrites() - before; n != 0 || e.enforced("vpca", 1) == "" {
		t.Errorf("%d writes in the cloud, NIC enforces %q; want no write", n, e.enforced("vpca", 1))
	}
}

// A policy is realized only when it is so as written.
func TestPolicyStatus(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.cloud.with(func(f *fakeCloud) {
		f.refusals = []policy.Refusal{{
			Policy: policy.PolicyID(policy.AntreaNetworkPolicy, e.ns, "db"), Rule: "rule-7", Reason: policy.RefusedQuota,
			Message: "too many rules", Limit: 60, Need: 61,
		}}
	})
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("all", everything), e.allow("db", "db", 5432), e.allow("web", "web", 80))
	e.eventually("refused", all(e.phaseIs("db", antreav1beta1.PolicyFailed), e.phaseIs("web", antreav1beta1.PolicyRealized)))
	p, err := get[antreav1beta1.NetworkPolicy](e, "db")
	if err != nil {
		t.Fatal(err)
	}
	want := "rule-7: QuotaExceeded: too many rules (needs 61 of 60) on aws/" + e.ns + "/acct/us-east-1/vpca"
	if c := p.Status.Conditions[0]; c.Type != antreav1beta1.ConditionRealizable || c.Status != "False" || c.Reason != "QuotaExceeded" || c.Message != want {
		t.Errorf("condition %+v; want %q", c, want)
	}
	e.eventually("an Event says so", e.hasEvent("db", want))
	for _, h := range e.running.Health() {
		if h.IsStuck(time.Now()) || h.Last.IsZero() && (h.Name == "world" || strings.HasPrefix(h.Name, "target")) {
			t.Errorf("%+v", h)
		}
	}
	e.cloud.with(func(f *fakeCloud) { f.refusals = nil; f.refuse["vpca"] = errors.New("Denied") })
	e.setPort("db", 5433)
	e.eventually("failed", e.phaseIs("db", antreav1beta1.PolicyFailed))
	e.cloud.with(func(f *fakeCloud) { f.refuse = map[string]error{} })
	e.eventually("recovered", all(e.phaseIs("db", antreav1beta1.PolicyRealized), e.has("vpca", 2, "5433")))

	broken := e.allow("broken", "db", 99)
	broken.Spec.Ingress[0].From[0] = antreav1beta1.NetworkPolicyPeer{IPBlock: &antreav1beta1.IPBlock{CIDR: "10.0.0.0/99"}}
	e.create(broken)
	e.eventually("unreadable", all(e.phaseIs("broken", antreav1beta1.PolicyFailed), e.hasEvent("broken", "spec.ingress[0].from[0].ipBlock.cidr")))
	e.quietly("the others stay", e.has("vpca", 2, "5433"))
}

// An account that is deleted and made again at once is a new one.
func TestAccountMadeAgain(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	cpa := e.account("us-east-1")
	e.create(e.secret(rightKeys), cpa, e.selector("all", everything), e.allow("web", "web", 80))
	e.eventually("enforced", e.has("vpca", 1, "80"))
	e.delete(cpa)
	e.eventually("gone", e.noAccount)
	e.create(e.account("us-east-1"))
	e.eventually("enforced again", all(e.has("vpca", 1, "80"), e.accountIs("", "Enforced", "True Enforced")))
}

// A VM belongs to the oldest selector that picks it, and the others say so.
func TestOverlap(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("b-first", inVPC("vpca")))
	e.eventually("first", e.entityHas("vpca", 1, cloudv1alpha1.LabelKind, "virtualmachine"))
	e.create(e.selector("c-second", everything))
	e.eventually("second", func() string {
		ces, err := get[cloudv1alpha1.CloudEntitySelector](e, "c-second")
		if err != nil {
			return err.Error()
		}
		return conditionIs(ces.Status.Conditions, "Overlapping", "True Overlapping")
	})
}

// A selector may be in another namespace than its account: its VMs are where it is.
func TestSelectorInAnotherNamespace(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.o.Namespaces = []string{e.ns, "default"}
	account, secret := e.account("us-east-1"), e.secret(rightKeys)
	account.Namespace, secret.Namespace = "default", "default"
	account.Name, secret.Name = e.ns, e.ns
	account.Spec.AWSConfig.SecretRef.Namespace, account.Spec.AWSConfig.SecretRef.Name = "default", e.ns
	ces := e.selector("all", everything)
	ces.Spec.AccountNamespace, ces.Spec.AccountName = "default", e.ns
	e.start()
	e.create(account, secret, ces, e.allow("web", "web", 80))
	e.eventually("enforced", all(e.has("vpca", 1, "80"), e.entityHas("vpca", 1, cloudv1alpha1.LabelNamespace, e.ns), e.selectorIs("all", "", "True Imported")))
	e.delete(account)
	e.delete(secret)
	e.eventually("restored", all(e.has("vpca", 1, ""), e.noEntity("vpca", 1)))
}

// A region that the account no longer has is left as it was; one that comes back is enforced again.
func TestRegionLeaves(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("web", "web", 80))
	both := all(e.has("vpca", 1, "80"), e.has("vpcb", 1, "80"))
	e.eventually("both", both)
	regions := func(names ...string) {
		update[cloudv1alpha1.CloudProviderAccount](e, "acct", func(cpa *cloudv1alpha1.CloudProviderAccount) { cpa.Spec.AWSConfig.Region = names })
	}
	regions("us-east-1")
	e.eventually("one leaves", all(e.has("vpca", 1, "80"), e.has("vpcb", 1, ""), e.noEntity("vpcb", 1)))
	regions("us-east-1", "us-west-2")
	e.eventually("and is back", all(both, e.accountIs("", "Enforced", "True Enforced")))

	// Nobody looks while it leaves, and its cloud does not answer at first.
	e.stop()
	regions("us-east-1")
	e.cloud.with(func(f *fakeCloud) { f.down["us-west-2"] = errors.New("500") })
	e.start()
	e.eventually("the other goes on", e.accountIs("", "Inventory", "True Listed"))
	e.quietly("it cannot be undone yet, and is remembered", func() string {
		if cpa, err := get[cloudv1alpha1.CloudProviderAccount](e, "acct"); err != nil || !slices.Contains(cpa.Status.Regions, "us-west-2") {
			return fmt.Sprint(cpa.Status.Regions, err)
		}
		return both()
	})
	e.cloud.with(func(f *fakeCloud) { clear(f.down) })
	e.eventually("undone", all(e.has("vpca", 1, "80"), e.has("vpcb", 1, ""), e.noEntity("vpcb", 1), e.accountIs("", "Enforced", "True Enforced"), func() string {
		if cpa, err := get[cloudv1alpha1.CloudProviderAccount](e, "acct"); err != nil || slices.Contains(cpa.Status.Regions, "us-west-2") {
			return fmt.Sprint("it is remembered: ", cpa.Status.Regions, err)
		}
		return ""
	}))
}

// A machine joins or changes: many are told apart from few by time alone.
func TestManyMachines(t *testing.T) {
	e := newEnv(t)
	e.estate()
	const most = 250
	e.cloud.with(func(f *fakeCloud) {
		f.latency = 0
		f.vms["us-east-1"] = nil
		for n := range most {
			role := "web"
			if n%10 == 0 {
				role = "db"
			}
			f.vms["us-east-1"] = append(f.vms["us-east-1"], vm("us-east-1", "vpca", n, map[string]string{"Name": fmt.Sprint("m", n), "Role": role}))
		}
	})
	e.start()
	t.Logf("%d machines imported and enforced in %v", most, e.timed("all", func() {
		e.create(e.allow("db", "db", 5432), e.secret(rightKeys), e.account("us-east-1"), e.selector("all", everything))
	}, func() string {
		for n := 0; n < most; n += 10 {
			if wrong := e.has("vpca", n, fmt.Sprintf("10.0.0.%d ", most-1))(); wrong != "" {
				return wrong
			}
		}
		return ""
	}))
	role := cloudv1alpha1.LabelTagPrefix + "Role"
	t.Logf("a retag among them in %v", e.timed("retagged", func() { e.label(entityName("vpca", 1), role, "db") }, e.has("vpca", 1, "5432")))
	s := e.running.Stats()
	t.Logf("%+v", s)
	if s.EntityWrites > most+10 {
		t.Errorf("%d writes of ExternalEntities for %d machines", s.EntityWrites, most)
	}
}

// An account that never worked can be deleted: there is nothing to undo.
func TestDeleteAccountThatNeverWorked(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	cpa := e.account("us-east-1")
	e.create(cpa, e.secret(`{"accessKeyId": "AKIA1234", "accessKeySecret": "wrong"}`))
	e.eventually("wrong keys", e.accountIs("AuthFailure", "Inventory", "False ReadFailed"))
	e.delete(cpa)
	e.eventually("gone", e.noAccount)
}

// Tags and names of all kinds make an ExternalEntity.
func TestEntityLabels(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.cloud.with(func(f *fakeCloud) {
		odd := vm("us-east-1", "vpca", 9, map[string]string{"Name": "my web", "a": "1", "aws:x": "y", "long": strings.Repeat("x", 64), "empty": ""})
		odd.NetworkName = "prod vpc"
		f.vms["us-east-1"] = []cloud.VM{odd}
	})
	e.start()
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("all", everything))
	e.eventually("made", all(
		e.entityHas("vpca", 9, cloudv1alpha1.LabelTagPrefix+"a", "1"),
		e.entityHas("vpca", 9, cloudv1alpha1.LabelTagPrefix+"empty", ""),
		e.entityHas("vpca", 9, cloudv1alpha1.LabelCloudVMUID, "i-vpca9"),
		e.entityHas("vpca", 9, cloudv1alpha1.LabelNamespace, e.ns),
		e.entityLacks("vpca", 9, cloudv1alpha1.LabelCloudVpcName),
		e.entityLacks("vpca", 9, cloudv1alpha1.LabelTagPrefix+"Name"),
	))
}

func (e *env) noAccount() string {
	if _, err := get[cloudv1alpha1.CloudProviderAccount](e, "acct"); !apierrors.IsNotFound(err) {
		return fmt.Sprint("the account is there: ", err)
	}
	return ""
}
