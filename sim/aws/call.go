package aws

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"isobar.dev/sim"
)

// request is one call on its way through a handler. The lock of the Cloud is held.
type request struct {
	c      *Cloud
	w      *world // the present one, or a frozen one
	s      *site  // nil for STS
	who    principal
	key    siteKey
	p      *params
	op     operation
	action string
	now    time.Time
	page   FaultKind // FaultRepeatPage, FaultMissPage or empty
	ended  bool      // a state in progress has ended
}

// operation is one action of a service.
type operation struct {
	params  string // names that it understands, with a ! behind those that must be there
	mutates bool
	run     func(*request) ([]elem, error)
}

// Handler serves EC2, STS, RDS, Elastic Load Balancing and, to loopback peers, the paths under /_sim/.
func (c *Cloud) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/_sim/", c.admin())
	mux.HandleFunc("/", c.serveAPI)
	return mux
}

func (c *Cloud) serveAPI(w http.ResponseWriter, r *http.Request) {
	service, action := "ec2", "Unknown"
	answer := func(body []elem, fail *apiError) {
		c.mu.Lock()
		c.seq++
		id := fmt.Sprintf("%08x-0000-4000-8000-%012x", c.opts.Seed&0xffffffff, c.seq)
		c.mu.Unlock()
		w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
		w.Header().Set("X-Amzn-Requestid", id)
		if fail != nil {
			w.WriteHeader(fail.status)
		}
		// The peer may be gone; there is nobody else to tell.
		_, _ = w.Write(render(service, action, id, body, fail))
	}
	if r.Method != http.MethodPost {
		answer(nil, errf("InvalidRequest", "Only POST is served"))
		return
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil || len(raw) > maxBody {
		e := errf("RequestEntityTooLarge", "The request body cannot be read or has more than %d bytes", maxBody)
		e.status = http.StatusRequestEntityTooLarge
		answer(nil, e)
		return
	}
	p, fail := parseParams(string(raw))
	if fail != nil {
		answer(nil, fail)
		return
	}
	sig, ok := parseAuthorization(r.Header.Get("Authorization"))
	if ok {
		service = sig.service
	} else {
		service = serviceOf(p.str("Version"))
	}
	switch {
	case !ok && service != "ec2":
		answer(nil, errf("MissingAuthenticationToken", "Request is missing Authentication Token"))
		return
	case !ok && r.Header.Get("Authorization") == "":
		answer(nil, missing("AWSAccessKeyId"))
		return
	case !ok || services()[service].version == "":
		answer(nil, errf("AuthFailure", "AWS was not able to validate the provided access credentials"))
		return
	}
	q := &request{c: c, p: p, now: c.opts.Now(), action: p.str("Action")}
	c.mu.Lock()
	q.who, fail = c.authenticate(r, raw, sig, q.now)
	c.mu.Unlock()
	if fail != nil {
		answer(nil, fail)
		return
	}
	q.key = siteKey{q.who.account.ID, sig.region}
	if fail := q.find(service); fail != nil {
		answer(nil, fail)
		return
	}
	action = q.action
	if !pause(r.Context(), c.opts.Latency) {
		return
	}
	body, fail, cut := c.call(r, q, service)
	if cut {
		panic(http.ErrAbortHandler) // net/http closes the connection without an answer
	}
	answer(body, fail)
}

// find looks the action up. Nothing that the client named freely reaches the answer's element names.
func (q *request) find(service string) *apiError {
	if q.action == "" {
		return missing("Action")
	}
	op, ok := services()[service].operations()[q.action]
	if v := q.p.str("Version"); !ok || v != services()[service].version {
		return errf("InvalidAction", "The action %s is not valid for this web service.", q.action)
	}
	q.op = op
	return nil
}

// call runs a request with everything that can befall it. cut asks for the connection to be closed.
func (c *Cloud) call(r *http.Request, q *request, service string) (body []elem, fail *apiError, cut bool) {
	c.mu.Lock()
	hit := c.strike(q.key, q.action)
	c.mu.Unlock()
	if f := hit[FaultLatency]; f != nil && !pause(r.Context(), time.Duration(f.Latency)) {
		return nil, nil, true
	}
	run := func() bool {
		q.now = c.opts.Now()
		c.w.advance(q.now)
		q.w = c.w
		if f := hit[FaultStale]; f != nil && service != "sts" && !q.op.mutates {
			q.w = f.frozen
		}
		if hit[FaultRepeatPage] != nil {
			q.page = FaultRepeatPage
		} else if hit[FaultMissPage] != nil {
			q.page = FaultMissPage
		}
		if hit[FaultCutBefore] != nil {
			cut = true
			fail = errf("InternalError", "cut")
		} else {
			body, fail = c.answer(q, service, hit[FaultError])
			cut = fail == nil && hit[FaultCutAfter] != nil
		}
		c.record(q, fail, cut)
		return fail == nil
	}
	switch {
	case q.op.mutates:
		c.write(run)
	case q.action == "DescribeManagedPrefixLists": // which may end a state: see PrefixListBusyCalls
		c.write(func() bool { run(); return q.ended })
	default:
		c.mu.Lock()
		run()
		c.mu.Unlock()
	}
	return body, fail, cut
}

// pause waits; it returns false when the client has gone.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// answer makes the checks that come before every action, in EC2's order, and runs it.
func (c *Cloud) answer(q *request, service string, broken *activeFault) ([]elem, *apiError) {
	if service != "sts" {
		q.s = q.w.sites[q.key]
		switch {
		case q.s != nil && !q.s.disabled:
		case service == "ec2":
			return nil, errf("AuthFailure", "AWS was not able to validate the provided access credentials")
		default:
			return nil, errf("InvalidClientTokenId", "The security token included in the request is invalid.")
		}
		switch {
		case c.opts.NoThrottle || c.token(q, service):
		case service == "ec2":
			return nil, errf("RequestLimitExceeded", "Request limit exceeded.")
		default:
			return nil, errf("Throttling", "Rate exceeded")
		}
	}
	if broken != nil {
		e := errf(orText(broken.Code, "InternalError"), "%s", orText(broken.Message, "An internal error has occurred"))
		if broken.Status != 0 {
			e.status = broken.Status
		}
		return nil, e
	}
	if !q.who.may(service, q.action) {
		code := "UnauthorizedOperation"
		if service != "ec2" {
			code = "AccessDenied"
		}
		return nil, errf(code, "You are not authorized to perform this operation. User: %s is not authorized to perform: %s:%s", q.who.arn, service, q.action)
	}
	allowed := []string{"Action", "Version", "DryRun"}
	for _, name := range strings.Fields(q.op.params) {
		name, must := strings.CutSuffix(name, "!")
		if must && !q.p.has(name) {
			return nil, missing(name)
		}
		allowed = append(allowed, name)
	}
	q.p.allow(allowed...)
	dry := q.p.flag("DryRun")
	if q.p.bad != nil {
		return nil, q.p.bad
	}
	if dry {
		return nil, errf("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
	}
	again, err := q.replay()
	if again != nil || err != nil {
		return again, asAPI(err)
	}
	body, err := q.op.run(q)
	if q.p.bad != nil && (err != nil || !q.op.mutates) {
		err = q.p.bad // what does not parse comes first; writers have looked before they wrote
	}
	if err != nil {
		return nil, asAPI(err)
	}
	q.remember(body)
	return body, nil
}

// asAPI gives an error the form in which it is answered.
func asAPI(err error) *apiError {
	if err == nil {
		return nil
	}
	if e, ok := err.(*apiError); ok {
		return e
	}
	return invalid("%v", err)
}

// maxReplays bounds the client tokens that a site remembers.
const maxReplays = 4096

// replayed is the answer to an earlier call with a client token.
type replayed struct {
	params string
	body   []elem
}

// replay finds the answer to the same call with the same client token, so that a client that missed
// the answer may ask again without a second effect.
func (q *request) replay() ([]elem, error) {
	token := q.p.str("ClientToken")
	if token == "" {
		return nil, nil
	}
	was, ok := q.s.replays[q.action+" "+token]
	if ok && was.params != q.fingerprint() {
		return nil, errf("IdempotentParameterMismatch", "The client token was used with other parameters")
	}
	return was.body, nil
}

func (q *request) remember(body []elem) {
	token := q.p.str("ClientToken")
	if token == "" || !q.op.mutates {
		return
	}
	if len(q.s.replays) >= maxReplays {
		clear(q.s.replays)
	}
	q.s.replays[q.action+" "+token] = replayed{q.fingerprint(), body}
}

func (q *request) fingerprint() string {
	flat := q.p.flat()
	var parts []string
	for _, k := range sortedKeys(flat) {
		parts = append(parts, k, flat[k])
	}
	return digest(parts...)
}

// token takes one token from the call's bucket.
func (c *Cloud) token(q *request, service string) bool {
	name, b := bucketOf(q.action, q.p)
	if service != "ec2" {
		name, b = service+" "+q.action, slowBucket(q.op.mutates)
	}
	if o, ok := c.opts.Buckets[q.action]; ok {
		b = o
	}
	k := levelKey{q.key, name}
	if c.levels[k] == nil {
		c.levels[k] = &sim.Level{}
	}
	_, ok := c.levels[k].Take(b, q.now)
	return ok
}

func orText(s, or string) string {
	if s == "" {
		return or
	}
	return s
}
