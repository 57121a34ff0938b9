package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/snapshot"
	etcdutl "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"isobar.dev/embedded/datadir"
)

const (
	// leastBump is by how much a restored etcd's revision is ahead of the snapshot's
	// at least: more than was written since.
	leastBump = 1_000_000_000

	// dialTimeout bounds how long a snapshot waits for etcd's socket to answer.
	dialTimeout = 10 * time.Second

	maxSocketFile = 4096 // bytes
)

// Snapshot writes what etcd has, of the control plane that runs on the directory, to a
// file that must not be there yet, mode 0600. It is of one moment, and checked
// against the checksum that etcd sends. The control plane goes on meanwhile.
func Snapshot(ctx context.Context, dataDir, file string) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("snapshot: %s is there already", file)
	}
	socket, err := socketOf(dataDir)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	_, err = snapshot.SaveWithVersion(ctx, zap.NewNop(), clientv3.Config{
		Endpoints: []string{"unix://" + socket}, DialTimeout: dialTimeout, Logger: zap.NewNop(),
	}, file)
	if err != nil {
		os.Remove(file + ".part")
		return fmt.Errorf("snapshot of the control plane on %s: %w", dataDir, err)
	}
	return nil
}

// socketOf is where the etcd of a running control plane listens.
func socketOf(dataDir string) (string, error) {
	name := filepath.Join(dataDir, socketFile)
	info, err := os.Stat(name)
	if err == nil && info.Size() > maxSocketFile {
		err = fmt.Errorf("%s is too long", name)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return "", fmt.Errorf("no control plane runs on %s: %w", dataDir, err)
	}
	socket := strings.TrimSpace(string(text))
	if _, err := os.Stat(socket); err != nil {
		return "", fmt.Errorf("no control plane runs on %s: %w", dataDir, err)
	}
	return socket, nil
}

// Restore makes the directory of a control plane, which must be empty or not there,
// with what a file of Snapshot has. The file must be whole: it has a checksum.
//
// Revisions, which are resourceVersions, go on beyond all that clients may have seen since,
// and those of before are gone: who watches from one of them is told to list anew.
func Restore(dataDir, file string) error {
	dir, err := datadir.Open(dataDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if _, err := os.Lstat(dir.Path(etcdDir)); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restore: %s has the data of a control plane already", dir.Path(""))
	}
	m := etcdutl.NewV3(zap.NewNop())
	status, err := m.Status(file)
	if err != nil {
		return fmt.Errorf("restore: read %s: %w", file, err)
	}
	err = m.Restore(etcdutl.RestoreConfig{
		SnapshotPath: file, OutputDataDir: dir.Path(etcdDir),
		Name: memberName, PeerURLs: []string{memberURL}, InitialCluster: memberName + "=" + memberURL, InitialClusterToken: "etcd-cluster",
		RevisionBump: bump(status.Revision, time.Now()), MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("restore %s: %w", file, err)
	}
	return nil
}

// bump is by how much the revision of a snapshot is raised. A snapshot may be restored
// twice, and what was written after the first time must be behind the second, too: so
// revisions go on from the time in milliseconds, faster than which nobody writes for long.
func bump(revision int64, now time.Time) uint64 {
	return uint64(max(leastBump, now.UnixMilli()-revision))
}
