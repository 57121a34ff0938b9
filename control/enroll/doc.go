// Package enroll gives the agent of a machine an identity of its own, and keeps it: it joins once by a
// token, keeps a key that never leaves the machine, and has the certificate of it renewed.
//
// The other side is package identity. What both have to agree on, tokens and hashes of authorities, is here, since
// agents link no API server.
package enroll
