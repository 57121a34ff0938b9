package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"isobar.dev/control/enroll"
)

// testTokens lets a machine join as people do, by a running Isobar, and ends it again.
func testTokens(t *testing.T, u *up) {
	t.Helper()
	isobar := func(args ...string) (int, string, string) {
		var out, errOut bytes.Buffer
		code := run(append(args, "--kubeconfig", u.plane.Kubeconfig()), strings.NewReader(""), &out, &errOut)
		return code, out.String(), errOut.String()
	}
	if code, _, text := isobar("token", "create", "default/web-1"); code != 1 || !strings.Contains(text, "--create makes one") {
		t.Errorf("without an ExternalNode: %d %s", code, text)
	}
	if code, _, text := isobar("token", "create", "default/web-1", "--label", "a=b"); code != 1 || !strings.Contains(text, "--create") {
		t.Errorf("labels of nothing: %d %s", code, text)
	}
	code, text, errText := isobar("token", "create", "default/web-1", "--create", "--label", "app=web", "-o", "json")
	var a joinAnswer
	if err := json.Unmarshal([]byte(text), &a); code != 0 || err != nil {
		t.Fatalf("token create: %d %s %s %v", code, text, errText, err)
	}
	token, err := enroll.ParseToken(a.Token)
	if err != nil {
		t.Fatal(err)
	}
	id, err := enroll.Join(t.Context(), enroll.Request{Servers: a.Servers, Token: token, CAHashes: a.CAHashes, Dir: filepath.Join(t.TempDir(), "id")}, enroll.Options{})
	if err != nil {
		t.Fatalf("%s: %v", a.Command, err)
	}
	if err := id.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	if _, text, _ := isobar("token", "list", "-A"); !strings.Contains(text, "web-1") || !strings.Contains(text, "used") {
		t.Errorf("token list:\n%s", text)
	}
	code, text, errText = isobar("token", "create", "default/web-1")
	if code != 0 || !strings.Contains(text, "isobar-agent join --server https://") || !strings.Contains(text, "default/web-1.") || !strings.Contains(errText, "has joined already") {
		t.Errorf("a second token: %d %s %s", code, text, errText)
	}
	if code, _, errText := isobar("token", "delete", "default/web-1"); code != 0 {
		t.Errorf("token delete: %s", errText)
	}
	if code, _, errText := isobar("agent", "revoke", "default/web-1"); code != 0 {
		t.Errorf("agent revoke: %s", errText)
	}
	if err := id.Renew(t.Context()); err == nil || !id.Status().Refused {
		t.Errorf("one that was revoked renews: %v", err)
	}
	if code, _, _ := isobar("agent", "revoke", "default/web-1"); code == 0 {
		t.Error("what is not there is revoked")
	}
}
