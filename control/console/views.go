package console

import (
	"context"
	"maps"
	"net/http"
	"slices"
)

// view is one question that can be asked.
type view struct {
	// answer returns the answer: a value that JSON writes as an object, without the revision. An error that
	// is for users is an *apierrors.StatusError.
	answer func(context.Context, *request) (any, error)
	params []string // that may stand in the query, once each
	many   []string // that may stand there often
	isPost bool
}

func (v view) method() string {
	if v.isPost {
		return http.MethodPost
	}
	return http.MethodGet
}

// views are all that there are, by name. It is never changed.
var views = map[string]view{
	"cell":      {answer: cell, params: []string{"by", "from", "to"}, many: []string{"port"}},
	"map":       {answer: mapOf, params: []string{"by", "within", "search", "open"}},
	"matrix":    {answer: matrix, params: []string{"by", "search"}, many: []string{"port"}},
	"me":        {answer: me},
	"workloads": {answer: workloads, params: []string{"search", "namespace", "kind", "limit", "continue"}},
	"workload":  {answer: oneWorkload, params: []string{"id"}},
	"policies":  {answer: policies, params: []string{"search", "namespace", "tier", "kind", "limit", "continue"}},
	"policy":    {answer: onePolicy, params: []string{"id"}},
	"explain":   {answer: explain, params: []string{"from", "to", "port", "toName", "all"}},
	"accounts":  {answer: accounts},
	"preview":   {answer: preview, isPost: true},
}

func viewNames() []string { return slices.Sorted(maps.Keys(views)) }

// request is a question, and what its answer is made of.
type request struct {
	*world
	*sight
	query
	body   []byte // of a POST
	source Source
}
