package aws

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxSkew is how far a signature's date may be from the clock.
const maxSkew = 15 * time.Minute

// principal is who signed a request.
type principal struct {
	account *Account
	arn     string
	userID  string
	deny    []string
}

// may says whether no entry of the deny list covers the action.
func (p principal) may(service, action string) bool {
	full := service + ":" + action
	return !slices.ContainsFunc(p.deny, func(pattern string) bool {
		// path.Match: actions hold no slash, so * covers everything.
		ok, err := path.Match(pattern, full)
		return ok || err != nil // a pattern that cannot be read denies
	})
}

// signature is the parsed Authorization header.
type signature struct {
	key, date, region, service string
	signed                     []string
	sum                        string
}

// parseAuthorization reads "AWS4-HMAC-SHA256 Credential=K/D/R/S/aws4_request, SignedHeaders=a;b, Signature=hex".
func parseAuthorization(h string) (signature, bool) {
	rest, ok := strings.CutPrefix(h, "AWS4-HMAC-SHA256 ")
	if !ok {
		return signature{}, false
	}
	var s signature
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			f := strings.Split(value, "/")
			if len(f) != 5 || f[4] != "aws4_request" {
				return signature{}, false
			}
			s.key, s.date, s.region, s.service = f[0], f[1], f[2], f[3]
		case "SignedHeaders":
			s.signed = strings.Split(value, ";")
		case "Signature":
			s.sum = value
		}
	}
	return s, s.key != "" && s.sum != "" && slices.Contains(s.signed, "host")
}

// authenticate verifies the signature of a request, as version 4 of AWS's signing process has it.
// EC2 refuses with other codes than the rest.
func (c *Cloud) authenticate(r *http.Request, body []byte, s signature, now time.Time) (principal, *apiError) {
	ec2 := s.service == "ec2"
	unknown := errf("AuthFailure", "AWS was not able to validate the provided access credentials")
	mismatch, expired := unknown, errf("RequestExpired", "Request has expired.")
	if !ec2 {
		unknown = errf("InvalidClientTokenId", "The security token included in the request is invalid.")
		mismatch = errf("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
		expired = errf("ExpiredToken", "The security token included in the request is expired")
	}
	secret, who, until := c.w.credential(s.key, r.Header.Get("X-Amz-Security-Token"))
	if who.account == nil {
		return principal{}, unknown
	}
	stamp := r.Header.Get("X-Amz-Date")
	at, err := time.Parse("20060102T150405Z", stamp)
	if err != nil || stamp[:8] != s.date {
		return principal{}, mismatch
	}
	if !hmac.Equal([]byte(sign(r, body, s, stamp, secret)), []byte(s.sum)) {
		return principal{}, mismatch
	}
	if at.Sub(now).Abs() > maxSkew {
		if !ec2 {
			return principal{}, errf("SignatureDoesNotMatch", "Signature expired: %s is not within %s of %s", stamp, maxSkew, now.UTC().Format("20060102T150405Z"))
		}
		return principal{}, expired
	}
	if !until.IsZero() && now.After(until) {
		return principal{}, expired
	}
	return who, nil
}

// credential finds the secret of an access key. A temporary one needs its token.
func (w *world) credential(id, token string) (secret string, who principal, until time.Time) {
	if s := w.sessions[id]; s != nil {
		a := w.accounts[s.Account]
		i := slices.IndexFunc(a.Roles, func(r *Role) bool { return r.Name == s.Role })
		if i < 0 || !hmac.Equal([]byte(token), []byte(s.Token)) {
			return "", principal{}, time.Time{}
		}
		return s.Secret, principal{
			account: a,
			arn:     "arn:aws:sts::" + a.ID + ":assumed-role/" + s.Role + "/" + s.Name,
			userID:  roleID(a.ID, s.Role) + ":" + s.Name,
			deny:    a.Roles[i].Deny,
		}, s.Expires
	}
	if token != "" { // a long-lived key has no token
		return "", principal{}, time.Time{}
	}
	for _, a := range w.accounts {
		for _, k := range a.Keys {
			if k.ID != id {
				continue
			}
			p := principal{account: a, arn: "arn:aws:iam::" + a.ID + ":root", userID: a.ID, deny: k.Deny}
			if k.User != "" {
				p.arn = "arn:aws:iam::" + a.ID + ":user/" + k.User
				p.userID = "AIDA" + strings.ToUpper(digest(a.ID, k.User)[:17])
			}
			return k.Secret, p, time.Time{}
		}
	}
	return "", principal{}, time.Time{}
}

func roleID(account, role string) string { return "AROA" + strings.ToUpper(digest(account, role)[:17]) }

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// sign computes the signature that the request should carry.
func sign(r *http.Request, body []byte, s signature, stamp, secret string) string {
	bodySum := sha256.Sum256(body)
	var headers strings.Builder
	for _, name := range s.signed {
		headers.WriteString(name + ":" + headerValue(r, name) + "\n")
	}
	canonical := strings.Join([]string{
		r.Method, canonicalPath(r), canonicalQuery(r.URL.Query()), headers.String(),
		strings.Join(s.signed, ";"), hex.EncodeToString(bodySum[:]),
	}, "\n")
	sum := sha256.Sum256([]byte(canonical))
	scope := strings.Join([]string{s.date, s.region, s.service, "aws4_request"}, "/")
	key := []byte("AWS4" + secret)
	for _, part := range []string{s.date, s.region, s.service, "aws4_request"} {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, "AWS4-HMAC-SHA256\n"+stamp+"\n"+scope+"\n"+hex.EncodeToString(sum[:])))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func headerValue(r *http.Request, name string) string {
	switch name {
	case "host":
		return r.Host
	case "content-length":
		return strconv.FormatInt(r.ContentLength, 10)
	}
	var vs []string
	for _, v := range r.Header.Values(name) {
		vs = append(vs, strings.Join(strings.Fields(v), " "))
	}
	return strings.Join(vs, ",")
}

func canonicalPath(r *http.Request) string {
	if p := r.URL.EscapedPath(); p != "" {
		return p
	}
	return "/"
}

func canonicalQuery(q url.Values) string {
	var pairs []string
	for k, vs := range q {
		for _, v := range vs {
			pairs = append(pairs, escape(k)+"="+escape(v))
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, "&")
}

// escape is RFC 3986's escaping, which differs from Go's in the space.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
