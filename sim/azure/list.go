package azure

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// item is one thing of a list. Its body is made only when the page is that has it.
type item struct {
	key  string
	body func() Document
}

// page cuts a sorted list. The token of the next page is the last key of this one, so that what comes and
// goes in between moves nothing else.
func (q *request) page(items []item) (*answer, *apiError) {
	size := q.c.opts.PageSize
	start := 0
	if t := q.query.Get("$skiptoken"); t != "" {
		last, err := base64.RawURLEncoding.DecodeString(t)
		if err != nil {
			return nil, errf("InvalidSkipToken", "The provided skip token is not valid.")
		}
		start, _ = slices.BinarySearchFunc(items, string(last)+"\x00", func(i item, k string) int { return strings.Compare(i.key, k) })
	}
	end := min(start+size, len(items))
	value := []any{}
	for _, i := range items[start:end] {
		value = append(value, i.body())
	}
	body := Document{"value": value}
	if end < len(items) {
		last := end - 1
		switch {
		case q.hit[FaultRepeatPage] != nil && start > 0:
			last = start - 1
		case q.hit[FaultMissPage] != nil:
			last = min(end+size, len(items)) - 1
		}
		next := url.Values{}
		for k, v := range q.query {
			next[k] = v
		}
		next.Set("$skiptoken", base64.RawURLEncoding.EncodeToString([]byte(items[last].key)))
		if q.hit[FaultRepeatPage] != nil && start == 0 {
			next.Del("$skiptoken")
		}
		body["nextLink"] = q.origin + q.path + "?" + next.Encode()
	}
	return &answer{status: http.StatusOK, body: body, header: map[string]string{
		"X-Ms-Ratelimit-Remaining-Subscription-Reads": q.c.remaining(q, ReadBucket),
	}}, nil
}

// listKind lists a kind of a resource group or of the subscription.
func listKind(k *kind) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		expand, only, set, fail := q.machineQuery(k)
		if fail != nil {
			return nil, fail
		}
		var items []item
		for _, key := range q.w.list(q.at.sub, k) {
			r := q.w.things[key]
			if q.at.id.group != "" && !strings.EqualFold(r.id.group, q.at.id.group) {
				continue
			}
			if set != "" && keyOf(r.view.(*machine).set) != set {
				continue
			}
			items = append(items, item{key, func() Document { return q.listed(r, expand, only) }})
		}
		return q.page(items)
	}
}

// machineQuery reads the parameters that lists of virtual machines have.
func (q *request) machineQuery(k *kind) (expand, only bool, set string, fail *apiError) {
	if k != virtualMachines {
		return false, false, "", nil
	}
	switch x := q.query.Get("$expand"); {
	case strings.EqualFold(x, "instanceView"):
		expand = true
	case x != "":
		return false, false, "", errf("InvalidParameter", "The value '%s' of parameter '$expand' is not simulated.", clip(x))
	}
	switch x := q.query.Get("statusOnly"); x {
	case "true":
		only = true
	case "", "false":
	default:
		return false, false, "", errf("InvalidParameter", "The value '%s' of parameter 'statusOnly' is invalid.", clip(x))
	}
	if f := q.query.Get("$filter"); f != "" {
		// 'virtualMachineScaleSet/id' eq /subscriptions/…
		id, ok := strings.CutPrefix(f, "'virtualMachineScaleSet/id' eq ")
		if _, err := parseID(strings.Trim(id, "'")); !ok || err != nil {
			return false, false, "", errf("InvalidParameter", "The value of parameter '$filter' is not simulated.")
		}
		set = keyOf(strings.Trim(id, "'"))
	}
	return expand, only, set, nil
}

// listed is a resource as lists have it.
func (q *request) listed(r *resource, expand, only bool) Document {
	body := q.w.body(r)
	if r.kind.loud {
		id := r.id
		id.group = strings.ToUpper(id.group)
		body["id"] = id.String()
	}
	if r.kind != virtualMachines {
		return body
	}
	props := object(body, "properties")
	if only {
		props = Document{"vmId": props["vmId"], "provisioningState": props["provisioningState"]}
		body["properties"] = props
	}
	if expand || only {
		props["instanceView"] = r.instanceView()
	}
	return body
}
