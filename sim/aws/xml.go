package aws

import (
	"bytes"
	"encoding/xml"
	"strconv"
	"time"
)

// elem is one XML element. One without a name is left out.
type elem struct {
	name string
	text string
	kids []elem
}

// el makes an element that holds elements.
func el(name string, kids ...elem) elem { return elem{name: name, kids: kids} }

// tx makes an element that holds text; empty text is written.
func tx(name, text string) elem { return elem{name: name, text: text} }

// opt is tx, but absent when the text is empty.
func opt(name, text string) elem {
	if text == "" {
		return elem{}
	}
	return tx(name, text)
}

func boolean(name string, v bool) elem { return tx(name, strconv.FormatBool(v)) }

func integer(name string, v int) elem { return tx(name, strconv.Itoa(v)) }

func instant(name string, t time.Time) elem {
	return tx(name, t.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// items makes a set with one item for every value.
func items[T any](name string, vs []T, f func(T) []elem) elem {
	e := elem{name: name}
	for _, v := range vs {
		e.kids = append(e.kids, elem{name: "item", kids: f(v)})
	}
	return e
}

// named makes a list with one element of that name for every value.
func named[T any](name, each string, vs []T, f func(T) []elem) elem {
	e := elem{name: name}
	for _, v := range vs {
		e.kids = append(e.kids, elem{name: each, kids: f(v)})
	}
	return e
}

// tagSet is the list of tags, absent when there are none, as EC2 does.
func tagSet(tags map[string]string) elem {
	if len(tags) == 0 {
		return elem{}
	}
	return items("tagSet", sortedKeys(tags), func(k string) []elem { return []elem{tx("key", k), tx("value", tags[k])} })
}

func (e elem) write(b *bytes.Buffer) {
	if e.name == "" {
		return
	}
	b.WriteString("<" + e.name + ">")
	// EscapeText replaces what XML cannot carry and fails only when the writer does.
	_ = xml.EscapeText(b, []byte(e.text))
	for _, k := range e.kids {
		k.write(b)
	}
	b.WriteString("</" + e.name + ">")
}

const (
	ec2Version = "2016-11-15"
	stsVersion = "2011-06-15"
	rdsVersion = "2014-10-31"
	elbVersion = "2015-12-01"
)

// render writes a whole answer of a service.
func render(service, action, requestID string, body []elem, fail *apiError) []byte {
	var b bytes.Buffer
	b.WriteString(xml.Header)
	id := tx("requestId", requestID)
	switch {
	case fail != nil && service != "ec2":
		open(&b, "ErrorResponse", services()[service].namespace)
		el("Error", tx("Type", "Sender"), tx("Code", fail.code), tx("Message", fail.message)).write(&b)
		tx("RequestId", requestID).write(&b)
		b.WriteString("</ErrorResponse>")
	case fail != nil:
		el("Response", el("Errors", el("Error", tx("Code", fail.code), tx("Message", fail.message))), tx("RequestID", requestID)).write(&b)
	case service != "ec2":
		open(&b, action+"Response", services()[service].namespace)
		el(action+"Result", body...).write(&b)
		el("ResponseMetadata", tx("RequestId", requestID)).write(&b)
		b.WriteString("</" + action + "Response>")
	default:
		open(&b, action+"Response", "http://ec2.amazonaws.com/doc/"+ec2Version+"/")
		id.write(&b)
		for _, e := range body {
			e.write(&b)
		}
		b.WriteString("</" + action + "Response>")
	}
	return b.Bytes()
}

func open(b *bytes.Buffer, name, namespace string) {
	b.WriteString("<" + name + ` xmlns="` + namespace + `">`)
}
