package azure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"isobar.dev/sim"
)

// request is one call of Resource Manager on its way through a handler. The lock of the Cloud is held.
type request struct {
	c      *Cloud
	w      *world // the present one, or a frozen one
	who    principal
	at     target
	op     operationInfo
	query  url.Values
	body   Document
	raw    []byte
	header http.Header
	origin string
	path   string
	now    time.Time
	hit    map[FaultKind]*activeFault
}

// answer is what a call is answered with when it is not refused.
type answer struct {
	status int
	header map[string]string
	body   any // nil is no body
}

// Handler serves tokens, Resource Manager and, to loopback peers, the metadata service and the paths
// under /_sim/.
func (c *Cloud) Handler() http.Handler {
	admin, metadata, authority := sim.LoopbackOnly(c.admin()), sim.LoopbackOnly(http.HandlerFunc(c.metadata)), c.authority()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case isManagement(r.URL.Path): // ids may hold what a ServeMux would clean away
			c.serveManagement(w, r)
		case strings.HasPrefix(r.URL.Path, "/_sim/"):
			admin.ServeHTTP(w, r)
		case r.URL.Path == "/metadata/identity/oauth2/token" && r.Method == http.MethodGet:
			metadata.ServeHTTP(w, r)
		default:
			authority.ServeHTTP(w, r)
		}
	})
}

// requestID makes up an id for an answer. The caller holds mu.
func (c *Cloud) requestID() string {
	c.seq++
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", c.opts.Seed&0xffffffff, c.seq)
}

func (c *Cloud) serveManagement(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	id := c.requestID()
	c.mu.Unlock()
	for _, h := range []string{"x-ms-request-id", "x-ms-correlation-request-id", "x-ms-arm-service-request-id"} {
		w.Header().Set(h, id)
	}
	w.Header().Set("Cache-Control", "no-cache")
	if !pause(r.Context(), c.opts.Latency) {
		return
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(raw) > maxBody {
		tell(w, nil, errf("RequestEntityTooLarge", "The request body cannot be read or has more than %d bytes.", maxBody))
		return
	}
	q := &request{
		c: c, raw: raw, header: r.Header, origin: origin(r), path: r.URL.EscapedPath(), now: c.opts.Now(),
	}
	if q.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		tell(w, nil, errf("InvalidQueryParameter", "The query cannot be read."))
		return
	}
	c.mu.Lock()
	var fail *apiError
	q.w = c.w
	q.who, fail = c.authenticate(r)
	if fail == nil {
		q.at, q.op, fail = route(r.Method, r.URL.Path)
	}
	c.mu.Unlock()
	if fail != nil {
		tell(w, nil, fail)
		return
	}
	a, fail, cut := c.call(r.Context(), q)
	if cut {
		panic(http.ErrAbortHandler) // net/http closes the connection without an answer
	}
	if fail != nil {
		tell(w, nil, fail)
		return
	}
	tell(w, a, nil)
}

// tell writes an answer.
func tell(w http.ResponseWriter, a *answer, fail *apiError) {
	if fail != nil {
		if fail.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer authorization_uri="https://login.microsoftonline.com/common", error="invalid_token", error_description="%s"`, fail.code))
		}
		if fail.after > 0 {
			w.Header().Set("Retry-After", seconds(fail.after))
		}
		reply(w, fail.status, Document{"error": fail.json()})
		return
	}
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	reply(w, a.status, a.body)
}

// seconds is a duration as Retry-After has it: rounded up.
func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }

// pause waits; it returns false when the client has gone.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// call runs a request with everything that can befall it. cut asks for the connection to be closed.
func (c *Cloud) call(ctx context.Context, q *request) (a *answer, fail *apiError, cut bool) {
	c.mu.Lock()
	q.hit = c.strike(q)
	c.mu.Unlock()
	if f := q.hit[FaultLatency]; f != nil && !pause(ctx, time.Duration(f.Latency)) {
		return nil, nil, true
	}
	run := func() bool {
		q.now = c.opts.Now()
		c.w.advance(q.now)
		q.w = c.w
		if f := q.hit[FaultStale]; f != nil && !q.op.mutates && !strings.HasPrefix(q.op.name, "Operation") {
			q.w = f.frozen
		}
		switch {
		case q.hit[FaultCutBefore] != nil:
			cut, fail = true, errf("InternalServerError", "cut")
		case q.hit[FaultError] != nil && !q.hit[FaultError].After:
			if a, fail = c.admit(q); fail == nil {
				fail = q.hit[FaultError].refusal()
			}
		default:
			if a, fail = c.admit(q); fail == nil {
				a, fail = q.op.run(q)
			}
			cut = fail == nil && q.hit[FaultCutAfter] != nil
		}
		c.record(q, fail, cut)
		done := fail == nil
		if f := q.hit[FaultError]; f != nil && f.After && fail == nil {
			fail = f.refusal()
		}
		if q.hit[FaultEmpty] != nil && fail == nil && !q.op.mutates {
			a = &answer{status: http.StatusOK, body: Document{"value": []any{}}}
		}
		c.w.advance(q.now)
		return done
	}
	if q.op.mutates {
		c.write(run)
	} else {
		c.mu.Lock()
		run()
		c.mu.Unlock()
	}
	return a, fail, cut
}

// admit makes the checks that come before every operation, in Resource Manager's order.
func (c *Cloud) admit(q *request) (*answer, *apiError) {
	if q.at.sub != "" {
		s := q.w.subs[fold(q.at.sub)]
		if s == nil || s.State == "Deleted" {
			return nil, errf("SubscriptionNotFound", "The subscription '%s' could not be found.", q.at.sub)
		}
		if fold(s.Tenant) != fold(q.who.tenant.ID) {
			return nil, errf("InvalidAuthenticationTokenTenant", "The access token is from the wrong issuer. It must match the tenant '%s' associated with this subscription.", s.Tenant)
		}
	}
	if fail := q.checkVersion(); fail != nil {
		return nil, fail
	}
	if fail := c.throttle(q); fail != nil {
		return nil, fail
	}
	if q.op.action != "" && !q.who.may(q.op.action, q.at.scope()) {
		return nil, q.denied(q.op.action, q.at.scope())
	}
	if fail := q.checkQuery(); fail != nil {
		return nil, fail
	}
	if q.at.sub != "" {
		s := q.w.subs[fold(q.at.sub)]
		if q.op.mutates && s.State != "" && s.State != "Enabled" {
			return nil, errf("ReadOnlyDisabledSubscription", "The subscription '%s' is disabled and therefore marked as read only. You cannot perform any write actions on this subscription until it is re-enabled.", s.ID)
		}
		if q.at.id.group != "" && s.groups[fold(q.at.id.group)] == nil && !q.op.makesGroup {
			return nil, errf("ResourceGroupNotFound", "Resource group '%s' could not be found.", q.at.id.group)
		}
	}
	if fail := q.locked(); fail != nil {
		return nil, fail
	}
	if !q.op.body {
		return nil, nil
	}
	doc, err := parseDocument(q.raw)
	if err != nil {
		return nil, errf("InvalidRequestContent", "The request content was invalid and could not be deserialized: '%v'.", err)
	}
	q.body = doc
	return nil, nil
}

// jsonBytes are a document as it goes over the wire.
func jsonBytes(d Document) []byte {
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // every document was JSON once
	}
	return b
}
