package azure

import (
	"net/http"
	"slices"
	"strings"
)

// holder finds the resource that a part is in.
func (q *request) holder() (*resource, *apiError) {
	id := q.at.id
	id.types = id.types[:1]
	id.names = id.names[:1]
	r := q.w.things[id.key()]
	if r == nil {
		return nil, errf("ParentResourceNotFound", "Can not perform requested operation on nested resource. Parent resource '%s' not found.", id.name())
	}
	return r, nil
}

func notFound(id resourceID) *apiError {
	return errf("NotFound", "Resource %s not found.", id)
}

func getPart(_ *kind, p *part) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		r, fail := q.holder()
		if fail != nil {
			return nil, fail
		}
		body := q.w.partBody(r, p.list, q.at.id.name())
		if body == nil {
			return nil, notFound(q.at.id)
		}
		return &answer{status: http.StatusOK, body: body, header: map[string]string{"ETag": r.etag}}, nil
	}
}

func putPart(k *kind, p *part) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		old, fail := q.holder()
		if fail != nil {
			return nil, fail
		}
		doc := copied(old.doc).(Document)
		props := object(doc, "properties")
		items, _ := props[p.list].([]any)
		at := indexOf(items, q.at.id.name())
		if fail := q.precondition(old, at >= 0); fail != nil {
			return nil, fail
		}
		one := copied(q.body).(Document)
		if name := text(one, "name"); name != "" && !strings.EqualFold(name, q.at.id.name()) {
			return nil, errf("InvalidRequestContent", "The request content is not valid: the name '%s' is not that of the request's URI.", clip(name))
		}
		one["name"] = q.at.id.name()
		if at >= 0 {
			one["name"] = items[at].(Document)["name"]
			items[at] = one
		} else {
			props[p.list] = append(items, one)
		}
		if fail := q.w.disconnected(old, q.at.id.name()); fail != nil && p.list == "virtualNetworkPeerings" {
			return nil, fail
		}
		r, fail := q.write(k, old.id, old, doc)
		if fail != nil {
			return nil, fail
		}
		return q.accepted(r, at < 0, q.w.partBody(r, p.list, q.at.id.name())), nil
	}
}

// indexOf finds a part by its name; -1 when there is none.
func indexOf(items []any, name string) int {
	for i, it := range items {
		if o, ok := it.(map[string]any); ok && strings.EqualFold(text(o, "name"), name) {
			return i
		}
	}
	return -1
}

func deletePart(k *kind, p *part) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		old, fail := q.holder()
		if fail != nil {
			return nil, fail
		}
		doc := copied(old.doc).(Document)
		props := object(doc, "properties")
		items, _ := props[p.list].([]any)
		at := indexOf(items, q.at.id.name())
		if at < 0 {
			return &answer{status: http.StatusNoContent}, nil
		}
		if fail := q.precondition(old, true); fail != nil {
			return nil, fail
		}
		props[p.list] = append(items[:at:at], items[at+1:]...)
		r, fail := q.write(k, old.id, old, doc)
		if fail != nil {
			return nil, fail
		}
		return &answer{status: http.StatusAccepted, header: q.async(r.op, true)}, nil
	}
}

func listPart(_ *kind, p *part) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		r, fail := q.holder()
		if fail != nil {
			return nil, fail
		}
		var items []item
		for _, o := range objects(object(q.w.body(r), "properties"), p.list) {
			items = append(items, item{key: fold(text(o, "name")), body: func() Document { return o }})
		}
		slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.key, b.key) })
		return q.page(items)
	}
}
