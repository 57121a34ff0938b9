package enroll

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// secretBytes are random: 160 bits.
const secretBytes = 20

// secretText is how a secret is written: 32 letters and digits, so that it is in one piece wherever it is
// pasted.
var secretText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// maxToken is the longest text of a token: two names, their separator, a dot and the secret.
const maxToken = 63 + 1 + 253 + 1 + secretBytes*8/5

// Token lets one machine join. It is printed without its secret; see Reveal.
type Token struct {
	Namespace, Name string // of the machine's ExternalNode
	secret          string
}

// NewToken makes a token with a secret that nobody else has.
func NewToken(namespace, name string) (Token, error) {
	var secret [secretBytes]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return Token{}, fmt.Errorf("make a token: %w", err)
	}
	return ParseToken(namespace + "/" + name + "." + secretText.EncodeToString(secret[:]))
}

// errToken says nothing of what the text is: it may have a secret in it.
var errToken = errors.New("this is no join token: want NAMESPACE/NAME.SECRET, as `isobar token create` prints it")

// ParseToken reads NAMESPACE/NAME.SECRET. Its error has nothing of the text.
func ParseToken(text string) (Token, error) {
	dot := strings.LastIndexByte(text, '.')
	if len(text) > maxToken || dot < 0 {
		return Token{}, errToken
	}
	namespace, name, ok := strings.Cut(text[:dot], "/")
	t := Token{Namespace: namespace, Name: name, secret: text[dot+1:]}
	raw, err := secretText.DecodeString(t.secret)
	if !ok || err != nil || len(raw) != secretBytes || secretText.EncodeToString(raw) != t.secret ||
		len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return Token{}, errToken
	}
	return t, nil
}

// Reveal is the whole token, for its user alone.
func (t Token) Reveal() string { return t.Namespace + "/" + t.Name + "." + t.secret }

// Format prints the token without its secret, whatever the verb.
func (t Token) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, t.Namespace+"/"+t.Name+".***") }

// MarshalText is refused: a token is in no document, but where Reveal puts it.
func (t Token) MarshalText() ([]byte, error) { return nil, errors.New("a token is not written down") }

// Hash is what is kept of the secret: "sha256:" and hexadecimal digits.
func (t Token) Hash() string {
	sum := sha256.Sum256([]byte(t.secret))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// Matches says whether a hash is that of the token. How long it takes says nothing of the hash.
func (t Token) Matches(hash string) bool {
	return subtle.ConstantTimeCompare([]byte(t.Hash()), []byte(hash)) == 1
}
