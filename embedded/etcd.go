package embedded

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"isobar.dev/embedded/datadir"
)

const (
	etcdDir    = "etcd"
	socketName = "etcd.sock"

	// socketFile has the path of the socket, for who makes a snapshot.
	socketFile = "etcd-socket"

	// memberName and memberURL name the only member; nothing listens there.
	memberName = "isobar"
	memberURL  = "http://127.0.0.1:2380"

	// maxSocketPath is what the address of a unix socket may be long, in bytes,
	// on every system: sun_path has 104 on macOS and BSD, 108 on Linux, with a final zero.
	maxSocketPath = 103

	// etcdQuota is the size of etcd's database at which it refuses writes, in
	// bytes: etcd's own limit of what it recommends. 100,000 objects need about a tenth.
	etcdQuota = 8 << 30

	etcdStartTimeout = 3 * time.Minute
)

// etcd is an etcd server that only this user can reach.
type etcd struct {
	server *embed.Etcd
	socket string
	temp   string // directory of the socket when it is not the data directory
}

// startEtcd starts etcd with its data in dir.
//
// It listens on a unix socket in a directory of mode 0700 and asks for no
// credentials: the directory is the credential. It listens on nothing for
// peers, since embed would bind the peer URL of a unix socket as an abstract
// one, which every local user can dial.
func startEtcd(dir *datadir.Dir, noFsync bool) (*etcd, error) {
	e := &etcd{socket: dir.Path(socketName)}
	if len(e.socket) > maxSocketPath {
		temp, err := os.MkdirTemp("", "isobar-etcd-") // mode 0700
		if err != nil {
			return nil, fmt.Errorf("make directory for etcd's socket: %w", err)
		}
		e.temp, e.socket = temp, filepath.Join(temp, socketName)
	}
	if err := os.Remove(e.socket); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("remove etcd's old socket: %w", err) // we hold the lock: nobody listens there
	}
	if err := dir.WriteFile(socketFile, []byte(e.socket+"\n")); err != nil {
		e.removeTemp()
		return nil, err
	}
	server, err := startServer(e.config(dir, noFsync))
	if err != nil {
		e.removeTemp()
		return nil, fmt.Errorf("start etcd, see %s: %w", dir.Path(logName), err)
	}
	e.server = server
	select {
	case <-server.Server.ReadyNotify():
		return e, nil
	case err = <-server.Err():
	case <-time.After(etcdStartTimeout):
		err = fmt.Errorf("not ready after %s", etcdStartTimeout)
	}
	e.Close()
	return nil, fmt.Errorf("start etcd, see %s: %w", dir.Path(logName), err)
}

// startServer is embed.StartEtcd with an error where that panics: at a
// write-ahead log that it cannot read it dereferences nil.
func startServer(cfg *embed.Config) (server *embed.Etcd, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("unreadable data in %s: %v", cfg.Dir, r)
		}
	}()
	return embed.StartEtcd(cfg)
}

func (e *etcd) config(dir *datadir.Dir, noFsync bool) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = dir.Path(etcdDir)
	client := url.URL{Scheme: "unix", Path: e.socket}
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: strings.TrimPrefix(memberURL, "http://")}}
	cfg.InitialCluster = memberName + "=" + memberURL
	cfg.EnableGRPCGateway = false
	cfg.QuotaBackendBytes = etcdQuota
	cfg.UnsafeNoFsync = noFsync
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(etcdLog(cfg.Dir))
	return cfg
}

// Endpoint is where clients of this process find etcd.
func (e *etcd) Endpoint() string { return "unix://" + e.socket }

// Err gives the error with which etcd ended by itself.
func (e *etcd) Err() <-chan error { return e.server.Err() }

// Close stops etcd and waits for it.
func (e *etcd) Close() {
	e.server.Close()
	e.removeTemp()
}

func (e *etcd) removeTemp() {
	if e.temp != "" {
		_ = os.RemoveAll(e.temp)
	}
}
