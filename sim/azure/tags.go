package azure

import (
	"net/http"
	"strings"
)

// checkTags refuses tags that Azure does not take.
func checkTags(tags map[string]string) *apiError {
	if len(tags) > 50 {
		return errf("InvalidTagsCount", "The number of tags %d exceeds the maximum of 50.", len(tags))
	}
	seen := map[string]bool{}
	for k, v := range tags {
		switch {
		case k == "" || len([]rune(k)) > 512 || strings.ContainsAny(k, `<>%&\?/`) || strings.HasPrefix(fold(k), "microsoft") || strings.HasPrefix(fold(k), "azure") || strings.HasPrefix(fold(k), "windows"):
			return errf("InvalidTagNameCharacters", "The tag name '%s' is empty, too long, reserved, or has one of the characters '<,>,%%,&,\\,?,/'.", clip(k))
		case len([]rune(v)) > 256:
			return errf("InvalidTagValueLength", "The value of tag '%s' has more than 256 characters.", clip(k))
		case seen[fold(k)]:
			return errf("DuplicateTagNames", "The tag name '%s' is given twice; tag names have no case.", clip(k))
		}
		seen[fold(k)] = true
	}
	return nil
}

// routeTags is for Microsoft.Resources/tags, the tags of anything by themselves. scope is the path after
// the subscription.
func routeTags(method string, t target, scope []string) (target, operationInfo, *apiError) {
	op := operationInfo{method: method, api: resourcesAPI}
	switch {
	case len(scope) == 2 && fold(scope[0]) == "resourcegroups":
		t.id.group = scope[1]
	case len(scope) == 6 && fold(scope[0]) == "resourcegroups" && fold(scope[2]) == "providers":
		t.id.group, t.id.provider, t.id.types, t.id.names = scope[1], properProvider(scope[3]), scope[4:5], scope[5:6]
		if err := t.id.check(); err != nil {
			return t, op, errf("InvalidResourceName", "%v", err)
		}
	default:
		return t, op, errf("InvalidResourceType", "Tags of '%s' are not simulated.", clip(strings.Join(scope, "/")))
	}
	switch method {
	case http.MethodGet:
		op.name, op.action, op.run = "Tags_GetAtScope", "Microsoft.Resources/tags/read", getTags
	case http.MethodPut:
		op.name, op.action, op.mutates, op.body, op.run = "Tags_CreateOrUpdateAtScope", "Microsoft.Resources/tags/write", true, true, writeTags
	case http.MethodPatch:
		op.name, op.action, op.mutates, op.body, op.run = "Tags_UpdateAtScope", "Microsoft.Resources/tags/write", true, true, writeTags
	case http.MethodDelete:
		op.name, op.action, op.mutates, op.run = "Tags_DeleteAtScope", "Microsoft.Resources/tags/write", true, writeTags
	}
	return t, op, methodFail(method, "GET", "PUT", "PATCH", "DELETE")
}

// tagged finds what a call about tags is about: a resource, or a resource group.
func (q *request) tagged() (*resource, map[string]string, *apiError) {
	if len(q.at.id.names) == 0 {
		return nil, q.group().Tags, nil
	}
	r := q.w.things[q.at.id.key()]
	if r == nil {
		return nil, nil, noResource(q.at.id)
	}
	tags, _ := tagsOf(r.doc) // loading has looked
	return r, tags, nil
}

func (q *request) tagsBody(tags map[string]string) *answer {
	return &answer{status: http.StatusOK, body: Document{
		"id": q.at.scope() + "/providers/Microsoft.Resources/tags/default", "name": "default", "type": "Microsoft.Resources/tags",
		"properties": Document{"tags": tagDocument(tags)},
	}}
}

func getTags(q *request) (*answer, *apiError) {
	_, tags, fail := q.tagged()
	if fail != nil {
		return nil, fail
	}
	return q.tagsBody(tags), nil
}

// writeTags replaces, merges or removes tags.
func writeTags(q *request) (*answer, *apiError) {
	r, have, fail := q.tagged()
	if fail != nil {
		return nil, fail
	}
	props, _ := q.body["properties"].(map[string]any)
	given, err := tagsOf(props)
	if err != nil {
		return nil, errf("InvalidRequestContent", "%v", err)
	}
	next := map[string]string{}
	how := "Replace"
	switch q.op.method {
	case http.MethodPatch:
		how = text(q.body, "operation")
	case http.MethodDelete:
		given = nil
	}
	switch how {
	case "Replace":
		next = given
	case "Merge", "Delete":
		drop := map[string]bool{}
		for k, v := range given {
			drop[fold(k)] = true
			if how == "Delete" && v != "" && have[k] != v {
				delete(drop, fold(k))
			}
		}
		for k, v := range have {
			if !drop[fold(k)] {
				next[k] = v
			}
		}
		if how == "Merge" {
			for k, v := range given {
				next[k] = v
			}
		}
	default:
		return nil, errf("InvalidRequestContent", "The operation '%s' is none of Merge, Replace and Delete.", clip(how))
	}
	if fail := checkTags(next); fail != nil {
		return nil, fail
	}
	if r == nil {
		g := *q.group()
		g.Tags = next
		q.w.subs[fold(q.at.sub)].groups[fold(g.Name)] = &g
	} else if _, fail := q.setTags(r, next); fail != nil {
		return nil, fail
	}
	if q.op.method == http.MethodDelete {
		return &answer{status: http.StatusOK}, nil
	}
	return q.tagsBody(next), nil
}
