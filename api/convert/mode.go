package convert

import (
	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	"isobar.dev/policy"
)

// Mode returns the mode of a policy whose object has these annotations. One that is
// not known enforces it: a denial must hold.
func Mode(annotations map[string]string) (policy.Mode, []Problem) {
	var ps problems
	switch text, ok := annotations[isobarv1alpha1.AnnotationMode]; {
	case !ok || text == isobarv1alpha1.ModeEnforce:
	case text == isobarv1alpha1.ModeStage:
		return policy.Stage, nil
	default:
		ps.add("metadata.annotations["+isobarv1alpha1.AnnotationMode+"]", "%q: want %s or %s; it is enforced", text, isobarv1alpha1.ModeEnforce, isobarv1alpha1.ModeStage)
	}
	return policy.Enforce, ps
}
