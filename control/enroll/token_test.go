package enroll

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestToken(t *testing.T) {
	a, err := NewToken("shop", "web-1.example.com")
	if err != nil {
		t.Fatal(err)
	}
	b, err := ParseToken(a.Reveal())
	if err != nil || b != a || !a.Matches(b.Hash()) {
		t.Errorf("%v became %v, %v", a, b, err)
	}
	if other, err := NewToken("shop", "web-1.example.com"); err != nil || other == a || other.Matches(a.Hash()) {
		t.Errorf("two tokens are one: %v, %v", other, err)
	}
	if a.Matches("") || a.Matches(a.secret) || a.Matches("sha256:") {
		t.Error("it matches what is no hash of it")
	}
	text := &strings.Builder{}
	slog.New(slog.NewJSONHandler(text, nil)).Info("x", slog.Any("token", a), slog.String("hash", a.Hash()))
	if _, err := json.Marshal(a); err == nil {
		t.Error("a token is written as JSON")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(text, verb+verb, a, &a)
		fmt.Fprintf(text, verb, []any{a, map[string]Token{"x": a}, struct{ T Token }{a}})
	}
	if strings.Contains(text.String(), a.secret) {
		t.Errorf("the secret is printed: %s", text)
	}
	for _, in := range []string{
		"", ".", "/", "a/b", "a/b.", "a/b.x", "/b." + a.secret, "a/." + a.secret, "a." + a.secret, "A/b." + a.secret, "a/b/c." + a.secret, "a/b." + a.secret + "\n", " a/b." + a.secret,
		"a/b." + a.secret[1:], "a/b.a" + a.secret, "a/b." + strings.ToUpper(a.secret), "a/b." + strings.Repeat("1", 32), "a/" + strings.Repeat("b", 300) + "." + a.secret,
	} {
		if got, err := ParseToken(in); err == nil {
			t.Errorf("ParseToken(%q) = %v", in, got)
		} else if strings.Contains(err.Error(), a.secret[2:]) {
			t.Errorf("the error has the secret: %v", err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("shop/web-1." + strings.Repeat("a", 32))
	f.Add("shop/web.1.example." + strings.Repeat("7", 32))
	f.Fuzz(func(t *testing.T, in string) {
		a, err := ParseToken(in)
		if err != nil {
			return
		}
		if a.Reveal() != in {
			t.Errorf("ParseToken(%q).Reveal() = %q", in, a.Reveal())
		}
		if strings.Contains(fmt.Sprint(a), a.secret) {
			t.Errorf("%q is printed", in)
		}
	})
}
