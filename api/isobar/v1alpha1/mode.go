package v1alpha1

// AnnotationMode is on a policy of any kind, and says whether it is enforced: it is, unless
// it has the value ModeStage. Then what it would do is computed and shown, and nothing enforces
// it. Any other value is refused by admission.
const AnnotationMode = "isobar.dev/mode"

// The values of AnnotationMode.
const (
	ModeEnforce = "Enforce"
	ModeStage   = "Stage"
)
