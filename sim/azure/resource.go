package azure

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// tell is a resource as an answer to its own path.
func (q *request) tell(r *resource, status int) *answer {
	body := q.w.body(r)
	return &answer{status: status, body: body, header: map[string]string{"ETag": r.etag}}
}

func getResource(k *kind) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		r := q.w.things[q.at.id.key()]
		if r == nil {
			return nil, noResource(q.at.id)
		}
		a := q.tell(r, http.StatusOK)
		if k == virtualMachines || k == scaleMachines {
			switch x := q.query.Get("$expand"); {
			case strings.EqualFold(x, "instanceView"):
				object(a.body.(Document), "properties")["instanceView"] = r.instanceView()
			case x != "":
				return nil, errf("InvalidParameter", "The value '%s' of parameter '$expand' is not simulated.", clip(x))
			}
		}
		return a, nil
	}
}

func getInstanceView(q *request) (*answer, *apiError) {
	r := q.w.things[q.at.id.key()]
	if r == nil {
		return nil, noResource(q.at.id)
	}
	return &answer{status: http.StatusOK, body: r.instanceView()}, nil
}

// precondition looks at If-Match and If-None-Match.
func (q *request) precondition(r *resource, there bool) *apiError {
	failed := func(format string, args ...any) *apiError {
		return errf("PreconditionFailed", "Precondition failed. "+format, args...)
	}
	if m := q.header.Get("If-None-Match"); m != "" && there && (m == "*" || m == r.etag) {
		return failed("Resource %s already exists.", q.at.id)
	}
	m := q.header.Get("If-Match")
	switch {
	case m == "":
		return nil
	case !there:
		return failed("Resource %s does not exist.", q.at.id)
	case m != "*" && m != r.etag:
		return failed("Etag provided in if-match header %s does not match etag %s of resource %s in NRP data store.", clip(m), r.etag, q.at.id)
	}
	return nil
}

// busy refuses to write what another operation has in its hands. Interfaces and security groups take the
// newer write, and the older one is canceled.
func busy(r *resource) *apiError {
	if r == nil {
		return nil
	}
	if r.state == "Deleting" {
		return errf("RetryableErrorDueToAnotherOperation", "Operation on resource %s could not be done because it is being deleted by another operation.", r.id)
	}
	if r.op == nil {
		return nil
	}
	switch r.kind {
	case virtualNetworks:
		e := errf("AnotherOperationInProgress", "Another operation on this or dependent resource is in progress. To retrieve status of the operation use uri: %s.", r.op.id)
		e.after = time.Second
		return e
	case virtualMachines, scaleSets, scaleMachines:
		return errf("Conflict", "The request failed due to conflict with a concurrent request on %s.", r.id)
	}
	return nil
}

func putResource(k *kind) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		if name := text(q.body, "name"); name != "" && !strings.EqualFold(name, q.at.id.name()) {
			return nil, errf("InvalidRequestContent", "The request content is not valid: the name '%s' is not that of the request's URI.", clip(name))
		}
		if k.provider() == networkAPI {
			if fail := checkName(q.at.id.name()); fail != nil {
				return nil, fail
			}
		}
		old := q.w.things[q.at.id.key()]
		if fail := q.precondition(old, old != nil); fail != nil {
			return nil, fail
		}
		r, fail := q.write(k, q.at.id, old, copied(q.body).(Document))
		if fail != nil {
			return nil, fail
		}
		return q.accepted(r, old == nil, nil), nil
	}
}

// write puts a document in the place of a resource and begins the operation that brings it into force.
func (q *request) write(k *kind, id resourceID, old *resource, doc Document) (*resource, *apiError) {
	if fail := busy(old); fail != nil {
		return nil, fail
	}
	id.provider, id.types = k.provider(), []string{k.plural()}
	if old != nil {
		id = old.id
	}
	location, _ := doc["location"].(string)
	switch {
	case location == "":
		return nil, errf("LocationRequired", "The location property is required for this definition.")
	case !slices.Contains(q.w.subs[fold(id.subscription)].Locations, region(location)):
		return nil, errf("LocationNotAvailableForResourceType", "The provided location '%s' is not available for resource type '%s'.", clip(location), k.name)
	case old != nil && old.location() != region(location):
		return nil, errf("InvalidResourceLocation", "The resource '%s' already exists in location '%s' in resource group '%s'. A resource with the same name cannot be created in location '%s'. Please select a new resource name.", id.name(), old.location(), id.group, clip(location))
	}
	r, fail := k.load(id, doc)
	if fail != nil {
		return nil, fail
	}
	if fail := k.check(q.w, r, old); fail != nil {
		return nil, fail
	}
	if fail := q.linked(r, old); fail != nil {
		return nil, fail
	}
	if k == scaleSets {
		if fail := q.w.fill(r); fail != nil {
			return nil, fail
		}
	}
	r.state = "Updating"
	if old != nil {
		r.live, r.guid, r.power, r.op, r.born = old.live, old.guid, old.power, old.op, old.born
	} else {
		r.guid, r.born = q.w.guid("resource"), q.now.UTC().Format("2006-01-02T15:04:05.0000000-07:00")
		if k.provider() == computeAPI {
			r.state = "Creating"
		}
	}
	r.etag = q.w.newETag()
	q.begin(r, "put")
	q.w.put(r)
	return r, nil
}

// async are the headers that lead to an operation.
func (q *request) async(o *operation, location bool) map[string]string {
	base := q.origin + "/subscriptions/" + o.sub + "/providers/" + o.provider + "/locations/" + o.location
	suffix := "/" + o.id + "?api-version=" + q.query.Get("api-version")
	h := map[string]string{"Azure-AsyncOperation": base + "/operations" + suffix, "Azure-AsyncNotification": "Enabled"}
	if location {
		h["Location"] = base + "/operationResults" + suffix
	}
	if left := o.due.Sub(q.now); left > 0 {
		h["Retry-After"] = seconds(left)
	}
	return h
}

// accepted answers a write whose operation has begun. body is what was written, when it is not r as a whole.
func (q *request) accepted(r *resource, created bool, body Document) *answer {
	a := q.tell(r, http.StatusOK)
	if body != nil {
		a.body = body
	}
	if created {
		a.status = http.StatusCreated
	} else if r.kind.provider() == networkAPI {
		// The answer to an update says Succeeded already, and yet the operation goes on.
		done := copied(a.body).(Document)
		object(done, "properties")["provisioningState"] = "Succeeded"
		a.body = done
	}
	for k, v := range q.async(r.op, false) {
		a.header[k] = v
	}
	bucket := WriteBucket
	a.header["X-Ms-Ratelimit-Remaining-Subscription-Writes"] = q.c.remaining(q, bucket)
	return a
}

// patchResource replaces tags, or merges the document of a virtual machine.
func patchResource(k *kind) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		old := q.w.things[q.at.id.key()]
		if old == nil {
			return nil, noResource(q.at.id)
		}
		if fail := q.precondition(old, true); fail != nil {
			return nil, fail
		}
		if k.patch == "Update" {
			doc := copied(old.doc).(Document)
			merge(doc, q.body)
			r, fail := q.write(k, old.id, old, doc)
			if fail != nil {
				return nil, fail
			}
			return q.accepted(r, false, nil), nil
		}
		for name := range q.body {
			if name != "tags" {
				return nil, errf("InvalidRequestContent", "A PATCH of %s changes tags alone, not '%s'.", k.name, clip(name))
			}
		}
		tags, err := tagsOf(q.body)
		if err != nil {
			return nil, errf("InvalidRequestContent", "%v", err)
		}
		r, fail := q.setTags(old, tags)
		if fail != nil {
			return nil, fail
		}
		return q.tell(r, http.StatusOK), nil
	}
}

// setTags replaces the tags of a resource, at once.
func (q *request) setTags(old *resource, tags map[string]string) (*resource, *apiError) {
	if fail := checkTags(tags); fail != nil {
		return nil, fail
	}
	if fail := busy(old); fail != nil {
		return nil, fail
	}
	r := *old
	r.doc = make(Document, len(old.doc)+1)
	for k, v := range old.doc {
		r.doc[k] = v
	}
	r.doc["tags"] = tagDocument(tags)
	r.etag = q.w.newETag()
	q.w.put(&r)
	return &r, nil
}

func tagDocument(tags map[string]string) Document {
	d := Document{}
	for k, v := range tags {
		d[k] = v
	}
	return d
}

// merge lays a patch over a document: null removes, objects are merged, all else replaces.
func merge(doc, patch Document) {
	for k, v := range patch {
		if v == nil {
			delete(doc, k)
			continue
		}
		sub, ok := v.(map[string]any)
		have, there := doc[k].(map[string]any)
		if ok && there {
			merge(have, sub)
			continue
		}
		doc[k] = copied(v)
	}
}

func deleteResource(k *kind) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		old := q.w.things[q.at.id.key()]
		if old == nil {
			return &answer{status: http.StatusNoContent}, nil
		}
		if fail := q.precondition(old, true); fail != nil {
			return nil, fail
		}
		if fail := busy(old); fail != nil {
			return nil, fail
		}
		if fail := k.inUse(q.w, old); fail != nil {
			return nil, fail
		}
		r := *old
		r.state, r.etag = "Deleting", q.w.newETag()
		o := q.begin(&r, "delete")
		q.w.put(&r)
		return &answer{status: http.StatusAccepted, header: q.async(o, true)}, nil
	}
}

// powerMachine starts or stops a virtual machine.
func powerMachine(p powerAction) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		old := q.w.things[q.at.id.key()]
		if old == nil {
			return nil, noResource(q.at.id)
		}
		if fail := busy(old); fail != nil {
			return nil, fail
		}
		r := *old
		r.power = p.passing
		o := q.begin(&r, p.then)
		q.w.put(&r)
		return &answer{status: http.StatusAccepted, header: q.async(o, true)}, nil
	}
}

// ongoing finds an operation of the caller's subscription.
func (q *request) ongoing(id string) (*operation, *apiError) {
	o := q.w.ops[fold(id)]
	if o == nil || !strings.EqualFold(o.sub, q.at.sub) {
		return nil, errf("NotFound", "Operation %s not found.", clip(id))
	}
	return o, nil
}

func getOperation(id string) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		o, fail := q.ongoing(id)
		if fail != nil {
			return nil, fail
		}
		a := &answer{status: http.StatusOK, body: o.statusBody(), header: map[string]string{}}
		if left := o.due.Sub(q.now); o.status == "InProgress" && left > 0 {
			a.header["Retry-After"] = seconds(left)
		}
		return a, nil
	}
}

func getOperationResult(id string) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		o, fail := q.ongoing(id)
		switch {
		case fail != nil:
			return nil, fail
		case o.status == "InProgress":
			return &answer{status: http.StatusAccepted, header: q.async(o, true)}, nil
		case o.fail != nil:
			return nil, o.fail
		}
		return &answer{status: http.StatusNoContent}, nil
	}
}
