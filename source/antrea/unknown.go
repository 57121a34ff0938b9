package antrea

import (
	"fmt"
	"reflect" // for the numbers in the tags of the types, of which the codec keeps none
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	kjson "sigs.k8s.io/json"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/wire"
)

// A controller that is newer than we are may say more of a rule than we can read: a condition,
// without which an Allow allows more, or a peer, without whom a Drop drops less. So a rule with
// a field that is not known is one whose peers and traffic cannot be read: it allows nothing,
// and what it denies it denies everyone. What is not known of a policy concerns all its rules.
// Of members and of metadata it concerns nobody.

// unknown is which rules of a policy have fields that are not known.
type unknown struct {
	all   bool
	rules map[int]bool
}

func (u *unknown) rule(i int) {
	if u.rules == nil {
		u.rules = map[int]bool{}
	}
	u.rules[i] = true
}

// close has the rules in p read as what cannot be.
func (u unknown) close(p *controlplanev1beta2.NetworkPolicy) {
	for i := range p.Rules {
		if !u.all && !u.rules[i] {
			continue
		}
		r := &p.Rules[i]
		// No rule has these on both sides, and there is no such protocol.
		r.From.LabelIdentities, r.To.LabelIdentities = []uint32{0}, []uint32{0}
		r.Services = []controlplanev1beta2.Service{{Protocol: new(controlplanev1beta2.Protocol("of a field that is not known"))}}
	}
}

// unknownOf finds what is not known of the NetworkPolicy in f.
func (f frame) unknownOf() (u unknown, err error) {
	if f.isJSON {
		return unknownInJSON(f.body)
	}
	return unknownInProtobuf(f.body)
}

// mostTold is how many fields kjson tells of.
const mostTold = 100

func unknownInJSON(body []byte) (u unknown, err error) {
	errs, err := kjson.UnmarshalStrict(body, new(controlplanev1beta2.NetworkPolicy))
	if err != nil {
		return u, err
	}
	u.all = len(errs) >= mostTold
	for _, err := range errs {
		_, path, ok := strings.Cut(err.Error(), `field "`)
		if !ok {
			u.all = true
			continue
		}
		if strings.HasPrefix(path, "metadata.") || strings.HasPrefix(path, "sourceRef.") {
			continue
		}
		index, rest, ok := strings.Cut(strings.TrimPrefix(path, "rules["), "].")
		i, err := strconv.Atoi(index)
		if !ok || err != nil || rest == "" || !strings.HasPrefix(path, "rules[") {
			u.all = true
			continue
		}
		u.rule(i)
	}
	return u, nil
}

// shape is the fields of a message: of each that is a message itself the shape, of others nil.
type shape map[protowire.Number]shape

// shapeOf returns the shape of a struct, by its tags.
func shapeOf(t reflect.Type) shape {
	out := shape{}
	for i := range t.NumField() {
		tag := strings.Split(t.Field(i).Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			continue
		}
		n, err := strconv.Atoi(tag[1])
		if err != nil {
			continue
		}
		of := t.Field(i).Type
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		out[protowire.Number(n)] = nil
		if of.Kind() == reflect.Struct {
			out[protowire.Number(n)] = shapeOf(of)
		}
	}
	return out
}

// The shapes of a policy's parts that may have more than we know.
var (
	policyShape = shapeOf(reflect.TypeFor[controlplanev1beta2.NetworkPolicy]())
	ruleShape   = shapeOf(reflect.TypeFor[controlplanev1beta2.NetworkPolicyRule]())
)

// numberOfRules is the field of a policy that its rules are.
const numberOfRules = 2

func unknownInProtobuf(body []byte) (u unknown, err error) {
	n := 0
	for len(body) > 0 {
		f, rest, err := wire.Next(body)
		if err != nil {
			return u, err
		}
		body = rest
		if _, ok := policyShape[f.Number]; !ok {
			u.all = true
		}
		if f.Number != numberOfRules {
			continue
		}
		ok, err := ruleShape.knows(f.Bytes)
		if err != nil {
			return u, fmt.Errorf("rules[%d]: %w", n, err)
		}
		if !ok {
			u.rule(n)
		}
		n++
	}
	return u, nil
}

// knows says whether a message has no field that s does not have.
func (s shape) knows(b []byte) (bool, error) {
	for len(b) > 0 {
		f, rest, err := wire.Next(b)
		if err != nil {
			return false, err
		}
		b = rest
		inner, ok := s[f.Number]
		if !ok {
			return false, nil
		}
		if inner == nil {
			continue
		}
		if ok, err := inner.knows(f.Bytes); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}
