package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/validate"
)

// maxReview bounds an AdmissionReview, which carries an object as it is and as
// it would become. The API server itself takes objects of up to 3 MiB.
const maxReview = 8 << 20

// parseReview reads an AdmissionReview with a request. Members that later versions of
// the API add are ignored; an object that is there twice is not.
func parseReview(body []byte) (*admissionv1.AdmissionRequest, error) {
	var review admissionv1.AdmissionReview
	strict, err := kjson.UnmarshalStrict(body, &review, kjson.DisallowDuplicateFields)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, fmt.Errorf("parse AdmissionReview: %w", err)
	}
	if want := admissionv1.SchemeGroupVersion.String(); review.APIVersion != want || review.Kind != "AdmissionReview" {
		return nil, fmt.Errorf("parse AdmissionReview: it is %q of %q, want AdmissionReview of %q", review.Kind, review.APIVersion, want)
	}
	r := review.Request
	if r == nil || r.UID == "" {
		return nil, errors.New("parse AdmissionReview: it has no request with a uid")
	}
	switch r.Operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete:
		return r, nil
	}
	return nil, fmt.Errorf("parse AdmissionReview: operation %q: want CREATE, UPDATE or DELETE", r.Operation)
}

// objects decodes the object of a request as it would become and as it is; either is
// nil when it is not there. Fields that are not known are errors, unless they
// were there before.
func (k kind) objects(r *admissionv1.AdmissionRequest) (now, old runtime.Object, errs field.ErrorList) {
	if got := r.Kind; got.Group != k.gvk.Group || got.Version != k.gvk.Version || got.Kind != k.gvk.Kind {
		return nil, nil, field.ErrorList{field.NotSupported(field.NewPath("kind"), got.String(), []string{k.gvk.String()})}
	}
	var unknown, had []error
	var err error
	if r.Operation != admissionv1.Create {
		if old, had, err = k.decode(r.OldObject.Raw); err != nil {
			// What cannot be read may be put right, and deleted.
			old = nil
		}
	}
	if r.Operation == admissionv1.Delete {
		return nil, old, nil
	}
	if now, unknown, err = k.decode(r.Object.Raw); err != nil {
		return nil, old, field.ErrorList{field.Invalid(field.NewPath("spec"), "", "cannot be read: "+err.Error())}
	}
	for _, e := range unknown {
		if !slices.ContainsFunc(had, func(h error) bool { return h.Error() == e.Error() }) {
			errs = append(errs, field.Invalid(field.NewPath("spec"), "", e.Error()+": isobar does not know what it means"))
		}
	}
	return now, old, errs
}

func (k kind) decode(text []byte) (obj runtime.Object, unknown []error, err error) {
	if len(text) == 0 {
		return nil, nil, errors.New("it is missing")
	}
	obj = k.object()
	unknown, err = kjson.UnmarshalStrict(text, obj)
	return obj, unknown, err
}

// decide answers a request for validation.
func (s *Server) decide(ctx context.Context, k kind, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	now, old, errs := k.objects(r)
	if len(errs) > 0 {
		return refuse(errs)
	}
	w := &world{ctx: ctx, client: s.client, layer7: !s.options.NoLayer7}
	errs, warnings := validate.Validate(validate.Request{
		Operation:      validate.Operation(r.Operation),
		Object:         now,
		Old:            old,
		FromController: s.options.Controller != "" && r.UserInfo.Username == s.options.Controller,
	}, w)
	if err := w.failure(); err != nil {
		return unable(err)
	}
	answer := &admissionv1.AdmissionResponse{Allowed: true}
	if len(errs) > 0 {
		answer = refuse(errs)
	}
	answer.Warnings = warnings
	if answer.Allowed {
		answer.Warnings = append(answer.Warnings, s.warn(ctx, k, r)...)
	}
	return answer
}

// warn returns what will not be enforced once the object is written. It decides
// nothing, and nothing that happens to it matters to the write.
func (s *Server) warn(ctx context.Context, k kind, r *admissionv1.AdmissionRequest) []string {
	if s.options.Warn == nil || r.Operation == admissionv1.Delete || k.gvk.Group == cloudv1alpha1.GroupVersion.Group {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, warnTimeout)
	answer := make(chan []string, 1)
	go func() {
		defer cancel()
		defer func() {
			if p := recover(); p != nil {
				s.options.Log.LogAttrs(ctx, slog.LevelError, "admission warning panicked",
					slog.String("kind", k.gvk.Kind), slog.String("namespace", r.Namespace), slog.String("name", r.Name), slog.Any("panic", p))
			}
		}()
		answer <- s.options.Warn(ctx, r.Object.Raw)
	}()
	<-ctx.Done()
	select {
	case warnings := <-answer:
		return warnings
	default:
		return nil
	}
}

// fill answers a request for mutation.
func (s *Server) fill(_ context.Context, k kind, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	allowed := &admissionv1.AdmissionResponse{Allowed: true}
	if r.Operation == admissionv1.Delete {
		return allowed
	}
	now, _, errs := k.objects(r)
	if len(errs) > 0 {
		return refuse(errs)
	}
	before, err := generic(now)
	if err != nil {
		return unable(err)
	}
	if !validate.Default(now) {
		return allowed
	}
	after, err := generic(now)
	if err != nil {
		return unable(err)
	}
	patch, err := json.Marshal(difference(nil, "", before, after))
	if err != nil {
		return unable(err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	allowed.Patch, allowed.PatchType = patch, &kind
	return allowed
}

func generic(obj runtime.Object) (any, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("write object: %w", err)
	}
	var out any
	return out, json.Unmarshal(text, &out)
}

func refuse(errs field.ErrorList) *admissionv1.AdmissionResponse {
	status := &metav1.Status{
		Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid,
		Message: errs.ToAggregate().Error(), Details: &metav1.StatusDetails{},
	}
	for _, e := range errs {
		status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Type: metav1.CauseType(e.Type), Field: e.Field, Message: e.ErrorBody()})
	}
	return &admissionv1.AdmissionResponse{Result: status}
}

// unable refuses because of us, not of the object.
func unable(err error) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{
		Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError,
		Message: fmt.Sprintf("isobar cannot decide now, try again: %v", err),
	}}
}
