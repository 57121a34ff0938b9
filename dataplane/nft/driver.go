package nft

// Config is what a Driver is made with. The zero Config is that of the network namespace
// of the calling thread, and of a table called "isobar".
type Config struct {
	Table string // name of the table; empty means "isobar"
	// NetNS is an open network namespace, or 0 for that of the calling thread.
	NetNS int
	// Place returns what is known of the machine, when a Ruleset is lowered; nil means
	// the zero Place.
	Place func() Place
	// Names says at which addresses DNS names are known; it goes into each Place. Who it is
	// tells [Driver.Names] of each change. Nil where nobody looks at answers of DNS.
	Names Names
	// NameQueue is the nfqueue of the answers; it goes into each Place.
	NameQueue uint16
}

// Count is how much a counter has counted: of an Allow or a Pass the packets that begin
// connections, of a Drop or Reject all.
type Count struct{ Packets, Bytes uint64 }
