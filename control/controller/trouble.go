package controller

import (
	"fmt"
	"slices"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

// trouble is why a policy cannot be enforced as it is written, wherever that is.
type trouble struct{ reason, message string }

// Reasons of troubles.
const (
	reasonUnread      = "Unreadable"
	reasonTierMissing = "TierMissing"
	reasonUnspoken    = "NotForAgents"
)

// troublesOf returns what is wrong with a policy itself; notice is what was found
// when it was read, or nil.
func troublesOf(s policy.Snapshot, p *policy.Policy, notice *kube.Notice) []trouble {
	var out []trouble
	if notice != nil && hasErrors(notice) {
		out = append(out, trouble{reasonUnread, noticeText(notice)})
	}
	if _, known := s.TierNumber(p.Tier); !known {
		out = append(out, trouble{reasonTierMissing,
			fmt.Sprintf("there is no tier %q: what the policy allows or passes is left out, and what it denies is in tier %s", p.Tier, policy.DefaultTier)})
	}
	for _, id := range reachingOut(s, p) {
		out = append(out, trouble{antreav1beta1.ReasonAppliedToUnsupportedGroup,
			fmt.Sprintf("%s may have members in other namespaces: the policy does not apply to any of it", id)})
	}
	return out
}

// unspoken returns what of a policy agents cannot be told, so that they are told something stricter.
func unspoken(problems []convert.Problem) []trouble {
	var out []trouble
	for _, p := range problems {
		out = append(out, trouble{reasonUnspoken, "agents are told something stricter: " + p.String()})
	}
	return out
}

// reachingOut returns the groups that a policy of a namespace is applied to and
// that reach out of it, sorted.
func reachingOut(s policy.Snapshot, p *policy.Policy) []string {
	if p.Namespace == "" {
		return nil
	}
	return slices.DeleteFunc(appliedGroups(p), func(id string) bool {
		members, _, _ := s.Members(id)
		return len(members) == 0 || len(s.Subjects(policy.Set{Groups: []string{id}}, p.Namespace)) > 0
	})
}

// appliedGroups returns the groups that a policy or a rule of it is applied to, sorted.
func appliedGroups(p *policy.Policy) []string {
	groups := slices.Clone(p.AppliedTo.Groups)
	for _, d := range []policy.Direction{policy.Ingress, policy.Egress} {
		for i := range p.Rules(d) {
			if set := p.Rules(d)[i].AppliedTo; set != nil {
				groups = append(groups, set.Groups...)
			}
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

func hasErrors(n *kube.Notice) bool {
	for _, p := range n.Problems {
		if !p.Warning {
			return true
		}
	}
	return false
}

func noticeText(n *kube.Notice) string {
	var texts []string
	for _, p := range n.Problems {
		texts = append(texts, p.String())
	}
	text := list(texts)
	if n.Unread {
		text = "not taken, what was known before stays: " + text
	}
	return text
}

func troubleTexts(troubles []trouble) string {
	var texts []string
	for _, t := range troubles {
		texts = append(texts, t.message)
	}
	return list(texts)
}
