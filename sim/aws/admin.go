package aws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"isobar.dev/sim"
)

// maxAdmin bounds an admin request's body, in bytes; an estate may be longer.
const maxAdmin = 16 << 20

// admin serves what EC2 does not have. It opens the whole simulated cloud, so it answers loopback
// peers only, and only by a loopback name, so that no page in a browser reaches it by a name that
// somebody else's DNS made up.
func (c *Cloud) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_sim/state", func(w http.ResponseWriter, _ *http.Request) { reply(w, c.Estate()) })
	mux.HandleFunc("PUT /_sim/state", func(w http.ResponseWriter, r *http.Request) {
		e, err := ParseEstate(r.Body)
		if err == nil {
			err = c.Restore(e)
		}
		done(w, err)
	})
	mux.HandleFunc("POST /_sim/reach", func(w http.ResponseWriter, r *http.Request) {
		var fs []Flow
		if err := readAdmin(r, func(b []byte) error { return sim.DecodeStrict(b, &fs) }); err != nil {
			done(w, err)
			return
		}
		reply(w, c.ReachAll(fs))
	})
	mux.HandleFunc("GET /_sim/calls", func(w http.ResponseWriter, _ *http.Request) { reply(w, c.Calls()) })
	mux.HandleFunc("DELETE /_sim/calls", func(w http.ResponseWriter, _ *http.Request) { c.ResetCalls(); done(w, nil) })
	mux.HandleFunc("GET /_sim/faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, c.Faults()) })
	mux.HandleFunc("POST /_sim/faults", func(w http.ResponseWriter, r *http.Request) {
		ids := []string{}
		err := readAdmin(r, func(b []byte) error {
			fs, err := decodeFaults(bytes.TrimSpace(b))
			for _, f := range fs {
				if err == nil {
					var id string
					id, err = c.AddFault(f)
					ids = append(ids, id)
				}
			}
			return err
		})
		if err != nil {
			done(w, err)
			return
		}
		reply(w, ids)
	})
	mux.HandleFunc("DELETE /_sim/faults", func(w http.ResponseWriter, r *http.Request) {
		c.ClearFaults(r.URL.Query()["id"]...)
		done(w, nil)
	})
	return sim.LoopbackOnly(mux)
}

func readAdmin(r *http.Request, f func([]byte) error) error {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxAdmin+1))
	if err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	if len(b) > maxAdmin {
		return fmt.Errorf("read request: more than %d bytes", maxAdmin)
	}
	return f(b)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	// The peer may be gone; there is nobody else to tell.
	_ = json.NewEncoder(w).Encode(v)
}

func done(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
