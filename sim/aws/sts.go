package aws

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"
)

var sessionNameRE = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)

func callerIdentity(q *request) ([]elem, error) {
	return []elem{tx("Arn", q.who.arn), tx("UserId", q.who.userID), tx("Account", q.who.account.ID)}, nil
}

// assumeRole issues a temporary credential. Whatever is wrong with the role, its trust or the
// external id, the answer is the same AccessDenied.
func assumeRole(q *request) ([]elem, error) {
	roleARN, name := q.p.str("RoleArn"), q.p.str("RoleSessionName")
	if !sessionNameRE.MatchString(name) {
		return nil, errf("ValidationError", "1 validation error detected: Value '%s' at 'roleSessionName' failed to satisfy constraint", name)
	}
	seconds, given := q.p.num("DurationSeconds")
	if !given {
		seconds = 3600
	}
	if q.p.bad != nil {
		return nil, errf("ValidationError", "%s", q.p.bad.message)
	}
	if seconds < 900 || seconds > 43200 {
		return nil, errf("ValidationError", "1 validation error detected: Value '%d' at 'durationSeconds' must be between 900 and 43200", seconds)
	}
	denied := errf("AccessDenied", "User: %s is not authorized to perform: sts:AssumeRole on resource: %s", q.who.arn, roleARN)
	rest, ok := strings.CutPrefix(roleARN, "arn:aws:iam::")
	account, roleName, ok2 := strings.Cut(rest, ":role/")
	if !ok || !ok2 {
		return nil, errf("ValidationError", "%s is invalid", roleARN)
	}
	a := q.w.accounts[account]
	if a == nil {
		return nil, denied
	}
	i := slices.IndexFunc(a.Roles, func(r *Role) bool { return r.Name == roleName })
	if i < 0 || !a.Roles[i].trusts(a, q.who) || a.Roles[i].ExternalID != "" && a.Roles[i].ExternalID != q.p.str("ExternalId") {
		return nil, denied
	}
	for id, s := range q.w.sessions { // the only place where sessions grow, so the place to forget old ones
		if q.now.After(s.Expires.Add(graveTime)) {
			delete(q.w.sessions, id)
		}
	}
	// Predictable secrets are fine: they open nothing but this simulator.
	q.w.serial++
	seed := digest(account, roleName, name, itoa(int(q.w.serial)))
	s := &Session{
		KeyID: "ASIA" + strings.ToUpper(seed[:16]), Secret: seed[16:56], Token: "FwoGZXIvYXdzE" + seed + digest(seed),
		Account: account, Role: roleName, Name: name, Expires: q.now.Add(time.Duration(seconds) * time.Second).UTC().Truncate(time.Second),
	}
	q.w.sessions[s.KeyID] = s
	return []elem{
		el("Credentials", tx("AccessKeyId", s.KeyID), tx("SecretAccessKey", s.Secret), tx("SessionToken", s.Token), instant("Expiration", s.Expires)),
		el("AssumedRoleUser", tx("AssumedRoleId", roleID(account, roleName)+":"+name), tx("Arn", "arn:aws:sts::"+account+":assumed-role/"+roleName+"/"+name)),
	}, nil
}

func (r *Role) trusts(own *Account, who principal) bool {
	trust := r.Trust
	if len(trust) == 0 {
		trust = []string{own.ID}
	}
	return slices.ContainsFunc(trust, func(t string) bool {
		t = cmp.Or(strings.TrimSuffix(strings.TrimPrefix(t, "arn:aws:iam::"), ":root"), t)
		return t == "*" || t == who.account.ID || "arn:aws:iam::"+t == who.arn || t == who.arn
	})
}
