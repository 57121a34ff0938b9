package web

import (
	"crypto/rand"
	"crypto/subtle"
	"strings"
	"sync"
	"time"
)

// Codes are what the user of a program logs in by, having started it: each once.
type Codes struct {
	tell func(code string)

	mu    sync.Mutex
	typed string // the one to be typed
	tries int    // that were wrong
	links map[string]time.Time
}

const (
	codeTries = 5
	linkLife  = time.Minute
	maxLinks  = 16
	// codeLength is of letters of codeAlphabet, which has 32: 50 bits. None looks like another.
	codeLength   = 10
	codeAlphabet = "ABCDEFGHJKMNPQRSTUVWXYZ123456789"
)

// NewCodes makes codes, and tells the one to be typed. It does so again whenever that was used, or was
// not met five times.
func NewCodes(tell func(code string)) *Codes {
	c := &Codes{tell: tell, links: map[string]time.Time{}}
	c.next()
	return c
}

// next makes another code to be typed.
func (c *Codes) next() {
	b := make([]byte, codeLength)
	rand.Read(b)
	for i := range b {
		b[i] = codeAlphabet[b[i]%32]
	}
	c.typed, c.tries = string(b), 0
	c.tell(c.typed[:codeLength/2] + "-" + c.typed[codeLength/2:])
}

// Link returns a code that nobody types, which is good for a minute.
func (c *Codes) Link() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for code, end := range c.links {
		if time.Now().After(end) || len(c.links) >= maxLinks {
			delete(c.links, code)
		}
	}
	code := secret()
	c.links[code] = time.Now().Add(linkLife)
	return code
}

// take says whether a code is good, and takes it.
func (c *Codes) take(code string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for link, end := range c.links {
		if subtle.ConstantTimeCompare([]byte(link), []byte(code)) == 1 {
			delete(c.links, link)
			return time.Now().Before(end)
		}
	}
	code = strings.NewReplacer("-", "", " ", "", "L", "1", "I", "1").Replace(strings.ToUpper(strings.TrimSpace(code)))
	if subtle.ConstantTimeCompare([]byte(c.typed), []byte(code)) == 1 {
		c.next()
		return true
	}
	if c.tries++; c.tries >= codeTries {
		c.next()
	}
	return false
}
