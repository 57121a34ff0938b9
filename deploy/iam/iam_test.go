package iam_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// list is one string, or several.
type list []string

// UnmarshalJSON reads either.
func (l *list) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*l = list{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(l))
}

type statement struct {
	Sid, Effect      string
	Action, Resource list
	Condition        map[string]map[string]list
}

func statements(t *testing.T) []statement {
	t.Helper()
	text, err := os.ReadFile("isobar.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Version   string
		Statement []statement
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&document); err != nil {
		t.Fatal(err)
	}
	// IAM counts what is not white space.
	if n := len(strings.Join(strings.Fields(string(text)), "")); n > 6144 {
		t.Errorf("the policy has %d characters; IAM takes 6144", n)
	}
	return document.Statement
}

// services are the prefixes of actions, by the package of the SDK.
var services = map[string]string{
	"ec2": "ec2", "rds": "rds", "elasticloadbalancingv2": "elasticloadbalancing",
}

// called returns the actions that the adapter calls: each is made of an Input.
func called(t *testing.T) []string {
	t.Helper()
	const dir = "../../cloud/aws"
	entries, err := fs.ReadDir(os.DirFS(dir), ".")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path.Join(dir, e.Name()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		packages := map[string]string{} // by the name that the file gives them
		for _, i := range file.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			rest, ok := strings.CutPrefix(p, "github.com/aws/aws-sdk-go-v2/service/")
			if !ok || strings.Contains(rest, "/") {
				continue
			}
			name := rest
			if i.Name != nil {
				name = i.Name.Name
			}
			packages[name] = rest
			if services[rest] == "" && rest != "sts" { // sts:AssumeRole is the caller's, on the role
				t.Errorf("%s calls %s, of which nothing is known here", e.Name(), rest)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && packages[x.Name] != "" {
					if action, ok := strings.CutSuffix(s.Sel.Name, "Input"); ok {
						out[services[packages[x.Name]]+":"+action] = true
					}
				}
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(out))
}

// The policy allows exactly what is called.
func TestActions(t *testing.T) {
	allowed := map[string]bool{}
	for _, s := range statements(t) {
		if s.Effect != "Allow" {
			t.Errorf("%s: %s", s.Sid, s.Effect)
		}
		for _, a := range s.Action {
			allowed[a] = true
		}
	}
	if d := cmp.Diff(called(t), slices.Sorted(maps.Keys(allowed))); d != "" {
		t.Errorf("the adapter calls -, the policy allows +:\n%s", d)
	}
}

// What changes something is bound to a kind of resource, and where AWS can tell, to
// what carries our mark.
func TestConditions(t *testing.T) {
	for _, s := range statements(t) {
		for _, a := range s.Action {
			_, action, _ := strings.Cut(a, ":")
			if strings.HasPrefix(action, "Describe") {
				continue
			}
			if slices.Contains(s.Resource, "*") {
				t.Errorf("%s: %s on everything", s.Sid, a)
			}
			isTag := strings.Contains(action, "Tags")
			isGroup := strings.HasSuffix(action, "SecurityGroupIngress") || strings.HasSuffix(action, "SecurityGroupEgress") || action == "DeleteSecurityGroup"
			isList := strings.Contains(action, "PrefixList")
			if (isTag || isGroup || isList) && len(s.Condition) == 0 {
				t.Errorf("%s: %s without a condition", s.Sid, a)
			}
		}
	}
}
