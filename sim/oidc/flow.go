package oidc

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// authorize leads a browser back with a code. What the client may not ask is told to the browser alone, which is led
// nowhere.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case q.Get("client_id") != p.client.ID:
		http.Error(w, "the client is not known", http.StatusBadRequest)
		return
	case p.does.Redirect == "" || q.Get("redirect_uri") != p.does.Redirect:
		http.Error(w, "the client is not to be led back there", http.StatusBadRequest)
		return
	}
	back := url.Values{"state": {q.Get("state")}}
	switch {
	case q.Get("response_type") != "code" || !slices.Contains(strings.Fields(q.Get("scope")), "openid") || q.Get("state") == "" || q.Get("nonce") == "":
		back.Set("error", "invalid_request")
	case q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != base64.RawURLEncoding.EncodedLen(sha256.Size):
		back.Set("error", "invalid_request")
	case p.does.User.Subject == "":
		back.Set("error", "access_denied")
	default:
		text := "code-" + rand.Text()
		p.codes[text] = code{asked: q, subject: p.does.User.Subject, until: time.Now().Add(codeLife)}
		p.given = append(p.given, text)
		back.Set("code", text)
	}
	http.Redirect(w, r, p.does.Redirect+"?"+back.Encode(), http.StatusFound)
}

// refusal is an error of RFC 6749. Its description is what such answers have, too: nobody is to be shown it.
func refusal(w http.ResponseWriter, status int, what string) {
	answer(w, status, map[string]string{"error": what, "error_description": Description})
}

// Description is in each refusal of a token. It is to be in no log and no page.
const Description = "description-of-the-provider"

// token gives tokens for a code, or for a refresh token.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isClient(r) {
		refusal(w, http.StatusUnauthorized, "invalid_client")
		return
	}
	switch r.PostFormValue("grant_type") {
	case "authorization_code":
		text := r.PostFormValue("code")
		c, ok := p.codes[text]
		delete(p.codes, text) // good once, whoever has it
		sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if !ok || time.Now().After(c.until) || r.PostFormValue("redirect_uri") != c.asked.Get("redirect_uri") ||
			base64.RawURLEncoding.EncodeToString(sum[:]) != c.asked.Get("code_challenge") {
			refusal(w, http.StatusBadRequest, "invalid_grant")
			return
		}
		p.give(w, c.asked.Get("nonce"), &grant{subject: c.subject})
	case "refresh_token":
		given := r.PostFormValue("refresh_token")
		g := p.grants[given]
		if g == nil || g.current != given || p.does.IsClosed {
			if g != nil {
				g.current = "" // one that is used twice was stolen: RFC 9700, section 4.14
			}
			refusal(w, http.StatusBadRequest, "invalid_grant")
			return
		}
		p.renewed++
		p.give(w, "", g)
	default:
		refusal(w, http.StatusBadRequest, "unsupported_grant_type")
	}
}

func (p *Provider) isClient(r *http.Request) bool {
	if id, secret, ok := r.BasicAuth(); ok {
		id, err := url.QueryUnescape(id)
		secret, err2 := url.QueryUnescape(secret)
		return err == nil && err2 == nil && id == p.client.ID && secret == p.client.Secret
	}
	return r.PostFormValue("client_id") == p.client.ID && r.PostFormValue("client_secret") == p.client.Secret
}

// give answers with tokens. It is called with the lock.
func (p *Provider) give(w http.ResponseWriter, nonce string, g *grant) {
	id, err := p.idToken(g.subject, nonce)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	access := "access-" + rand.Text()
	p.given = append(p.given, access)
	out := map[string]any{"access_token": access, "token_type": "Bearer", "id_token": id, "expires_in": 3600}
	if !p.does.NoRefresh {
		g.current = "refresh-" + rand.Text()
		p.grants[g.current] = g
		p.given = append(p.given, g.current)
		out["refresh_token"] = g.current
	}
	answer(w, http.StatusOK, out)
}
