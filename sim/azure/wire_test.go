package azure_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

func read(t *testing.T, r *http.Response) string {
	t.Helper()
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func decode[T any](t *testing.T, b []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return v
}

// last is the name at the end of an id.
func last(id string) string { return id[strings.LastIndex(id, "/")+1:] }
