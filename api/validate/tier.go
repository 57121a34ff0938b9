package validate

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// reservedPriorities are those of the tiers that stand for other policy APIs:
// ClusterNetworkPolicy 220 and 254, AdminNetworkPolicy 251, NetworkPolicy 252.
func reservedPriorities() []int32 { return []int32{220, 251, 252, 254, 255} }

func (v *validator) tier(spec *field.Path, t, old *antreav1beta1.Tier, r Request) {
	path, n := spec.Child("priority"), t.Spec.Priority
	if r.Operation == Update && old != nil {
		if n != old.Spec.Priority && !r.FromController {
			v.forbid(path, "cannot change from %d; make another tier", old.Spec.Priority)
		}
		return
	}
	builtins := antreav1beta1.BuiltinTiers()
	if want, ok := builtins[t.Name]; ok {
		if n != want {
			v.invalid(path, n, "the built-in tier %s has %d", t.Name, want)
		}
		return
	}
	if n < 0 || n > 255 {
		v.invalid(path, n, "want a number from 0 to 249")
		return
	}
	if slices.Contains(reservedPriorities(), n) {
		v.forbid(path, "%d is reserved; use another number from 0 to 249", n)
		return
	}
	for _, want := range builtins {
		if n == want {
			v.duplicate(path, n, "a built-in tier has it; use another number from 0 to 249")
			return
		}
	}
	if v.w == nil {
		return
	}
	others := len(builtins)
	for _, o := range v.w.Tiers() {
		if o.Name == t.Name {
			continue
		}
		if _, builtin := builtins[o.Name]; builtin {
			continue
		}
		others++
		if o.Spec.Priority == n {
			v.duplicate(path, n, "the tier "+o.Name+" has it; use another number from 0 to 249")
		}
	}
	if others >= antreav1beta1.MaxTiers {
		v.forbid(field.NewPath("metadata", "name"), "there are %d tiers, and at most %d; delete one first", others, antreav1beta1.MaxTiers)
	}
}

func deleteTier(t *antreav1beta1.Tier, fromController bool, w World) field.ErrorList {
	name := field.NewPath("metadata", "name")
	if _, ok := antreav1beta1.BuiltinTiers()[t.Name]; ok && !fromController {
		return field.ErrorList{field.Forbidden(name, "the tier "+t.Name+" is built in")}
	}
	if w == nil {
		return nil
	}
	if n := w.PoliciesIn(t.Name); n > 0 {
		return field.ErrorList{field.Forbidden(name, fmt.Sprintf("policies in this tier: %d; move or delete them first", n))}
	}
	return nil
}
