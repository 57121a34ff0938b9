package apiserver

import (
	"testing"

	"k8s.io/client-go/rest"
)

// A client of reviews with client-go's own limit, of five a second, has a thousand agents wait for ten minutes.
func TestReviewsAreNotLimited(t *testing.T) {
	s, err := New(&rest.Config{Host: "https://127.0.0.1:1"}, struct{ Inventory }{}, Options{Hosts: []string{"localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	for what, client := range map[string]rest.Interface{"TokenReviews": s.client.AuthenticationV1().RESTClient(), "SubjectAccessReviews": s.client.AuthorizationV1().RESTClient()} {
		if l := client.GetRateLimiter(); l != nil {
			t.Errorf("%s are limited to %v a second", what, l.QPS())
		}
	}
}
