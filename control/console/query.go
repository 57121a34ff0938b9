package console

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	maxQuery = 16 << 10 // bytes
	maxValue = 1 << 10  // of one value
	maxMany  = 64       // values of one parameter
)

// query has the parameters of a question.
type query struct{ values url.Values }

// parseQuery reads the query of a view. What the view does not know is an error, so that nobody
// takes an answer for that to another question.
func parseQuery(raw string, v view) (query, error) {
	if len(raw) > maxQuery {
		return query{}, apierrors.NewBadRequest(fmt.Sprintf("the query has more than %d bytes", maxQuery))
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return query{}, apierrors.NewBadRequest("the query cannot be read")
	}
	for name, all := range values {
		isMany := slices.Contains(v.many, name)
		switch {
		case !isMany && !slices.Contains(v.params, name):
			return query{}, apierrors.NewBadRequest(fmt.Sprintf("no parameter %q is known here: there are %s", clip(name), listed(slices.Concat(v.params, v.many))))
		case !isMany && len(all) > 1:
			return query{}, apierrors.NewBadRequest(fmt.Sprintf("%s: stands more than once", name))
		case len(all) > maxMany:
			return query{}, apierrors.NewBadRequest(fmt.Sprintf("%s: stands more than %d times", name, maxMany))
		}
		for _, value := range all {
			if len(value) > maxValue || !utf8.ValidString(value) {
				return query{}, apierrors.NewBadRequest(fmt.Sprintf("%s: want at most %d bytes of UTF-8", name, maxValue))
			}
		}
	}
	return query{values}, nil
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// clip returns what of a text that others wrote stands in an error.
func clip(s string) string {
	const most = 128
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// text returns a parameter; empty means that it is not there.
func (q query) text(name string) string { return q.values.Get(name) }

// all returns each value of a parameter, in the order in which they stand there.
func (q query) all(name string) []string { return q.values[name] }

// flag returns a parameter that is true or false; false without one.
func (q query) flag(name string) (bool, error) {
	switch text := q.text(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, apierrors.NewBadRequest(fmt.Sprintf("%s=%q: want true or false", name, clip(text)))
	}
}

// number returns a parameter from 1 to most, or without one the default.
func (q query) number(name string, without, most int) (int, error) {
	text := q.text(name)
	if text == "" {
		return without, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("%s=%q: want a number from 1 to %d", name, clip(text), most))
	}
	return n, nil
}

// word returns a parameter that is one of some words, or is not there.
func (q query) word(name string, of ...string) (string, error) {
	text := q.text(name)
	if text != "" && !slices.Contains(of, text) {
		return "", apierrors.NewBadRequest(fmt.Sprintf("%s=%q: want %s", name, clip(text), strings.Join(of, ", ")))
	}
	return text, nil
}

// How many rows a list has, unless it is asked for others, and at most.
const (
	fewRows  = 100
	manyRows = 1000
)

// page returns how many rows are wanted, and the key of the last one that is known already.
func (q query) page() (limit int, after string, err error) {
	if limit, err = q.number("limit", fewRows, manyRows); err != nil {
		return 0, "", err
	}
	key, err := base64.RawURLEncoding.DecodeString(q.text("continue"))
	if err != nil {
		return 0, "", apierrors.NewBadRequest("continue: want what an earlier answer had")
	}
	return limit, string(key), nil
}

// continues is where a list goes on: after the row of that key.
func continues(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }
