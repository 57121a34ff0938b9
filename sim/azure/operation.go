package azure

import (
	"maps"
	"slices"
	"time"
)

// maxOperations bounds the operations that are remembered after their end.
const maxOperations = 1 << 14

// operation is a long-running operation on a resource.
type operation struct {
	id       string
	serial   uint64
	sub      string
	provider string
	location string
	key      string // of the resource
	verb     string // put, delete or a power state
	started  time.Time
	due      time.Time
	ended    time.Time
	status   string // InProgress, Succeeded, Failed or Canceled
	fail     *apiError
	doom     *apiError // with which it will fail
	result   string    // path of the resource to read at the end; empty when there is none
}

// begin starts an operation that changes r, which is not stored yet.
func (q *request) begin(r *resource, verb string) *operation {
	w := q.w
	if r.op != nil && r.op.status == "InProgress" { // the newer one wins, and the older one's writer is told
		r.op.status, r.op.ended = "Canceled", q.now
		r.op.fail = errf("CanceledAndSupersededDueToAnotherOperation", "Operation %s was canceled and superseded by another operation.", r.op.id)
		w.pending = slices.DeleteFunc(w.pending, func(o *operation) bool { return o == r.op })
	}
	o := &operation{
		id: w.guid("operation"), serial: w.serial, sub: r.id.subscription, provider: r.kind.provider(), location: r.location(),
		key: r.key(), verb: verb, started: q.now, due: q.now.Add(q.c.opts.Settle), status: "InProgress",
	}
	if f := q.hit[FaultSlow]; f != nil {
		o.due = o.due.Add(time.Duration(f.Latency))
	}
	if f := q.hit[FaultOperation]; f != nil {
		o.doom = f.refusal()
	}
	r.op = o
	if len(w.ops) >= maxOperations {
		w.trimOperations()
	}
	w.ops[o.id] = o
	w.pending = append(w.pending, o)
	return o
}

// trimOperations forgets the older half of what has ended.
func (w *world) trimOperations() {
	done := slices.DeleteFunc(slices.Collect(maps.Values(w.ops)), func(o *operation) bool { return o.status == "InProgress" })
	slices.SortFunc(done, func(a, b *operation) int { return int(int64(a.serial) - int64(b.serial)) })
	for _, o := range done[:len(done)/2] {
		delete(w.ops, o.id)
	}
}

// finish ends an operation: only now its change is in force.
func (w *world) finish(o *operation) {
	o.status, o.ended = "Succeeded", o.due
	was := w.things[o.key]
	if was == nil || was.op != o {
		return // something else has taken it over
	}
	r := *was
	r.op, r.etag = nil, w.newETag()
	switch {
	case o.doom != nil:
		o.status, o.fail, r.state = "Failed", o.doom, "Failed"
		w.put(&r)
		return
	case o.verb == "delete":
		w.remove(was)
		return
	case o.verb == "put":
		r.live, r.state = r.view, "Succeeded"
		if slices.Contains(anyMachine, r.kind) && r.power == "" {
			r.power = "running"
		}
	default:
		r.power = o.verb
	}
	w.put(&r)
	switch r.kind {
	case virtualNetworks:
		w.settlePeerings(r.key())
	case scaleSets, scaleMachines:
		w.settleSet(&r)
	}
}

// remove drops a resource and what goes with it.
func (w *world) remove(r *resource) {
	for _, m := range w.inSet(r, scaleMachines) {
		w.removeMachine(m)
	}
	w.drop(r.key())
	switch v := r.view.(type) {
	case *network:
		w.settlePeerings(r.key())
	case *machine:
		for _, k := range v.drop {
			w.drop(k)
		}
	}
}

// statusBody is how an operation is answered.
func (o *operation) statusBody() Document {
	body := Document{"status": o.status}
	if o.provider != "Microsoft.Network" {
		body["startTime"] = o.started.UTC().Format(time.RFC3339Nano)
		body["name"] = o.id
		if !o.ended.IsZero() {
			body["endTime"] = o.ended.UTC().Format(time.RFC3339Nano)
		}
	}
	if o.fail != nil {
		body["error"] = o.fail.json()
	}
	return body
}
