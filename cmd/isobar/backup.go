package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	isobarv1alpha2 "isobar.dev/api/isobar/v1alpha2"
	"isobar.dev/cmd/isobar/archive"
	"isobar.dev/control/plane"
)

func serverBackupCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write all state of a running server to a file",
		Long: `Writes what a running server has stored, as of one moment, and its authorities and keys to a file, which an
older one of that name becomes in one step. The server goes on meanwhile.

The file has the keys to everything: keep it as safe as the data directory. Its mode is 0600.`,
		Example: `  isobar server backup /var/backups/isobar.tar`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := backup(cmd.Context(), planeSearch(cmd), dataDir, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s has the state of the server on %s\n", args[0], dataDir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", defaultServerDir, "folder of the server's state")
	return cmd
}

func serverRestoreCommand() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a server's data directory of a backup",
		Long: `Makes a data directory, which must be empty or not there, of a file that backup has written. The next
isobar server on it goes on with what there was when the backup was made: what was deleted or revoked since is
there again. An empty directory that was there gives the new one its owner.`,
		Example: `  isobar server restore /var/backups/isobar.tar --data-dir /var/lib/isobar-server`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			created, err := restore(cmd.Context(), planeSearch(cmd), args[0], dataDir)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s has the state of %s\n", dataDir, created.Format(time.RFC3339))
			return nil
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "folder to make")
	if err := cmd.MarkFlagRequired("data-dir"); err != nil {
		panic(err) // the flag is there
	}
	return cmd
}

// planeSearch finds the control plane's binary, and says when it has to be built.
func planeSearch(cmd *cobra.Command) plane.Search {
	return plane.Search{Progress: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }}
}

// made anew by every start, or of one run alone.
var notKept = []string{"kubeconfig", "control-plane/kubeconfig", "control-plane/lock", "control-plane/etcd-socket", "control-plane/etcd.sock", "control-plane/etcd"}

// kept are the files of a data directory, but for what etcd has, that a server goes on with.
func kept(dataDir string) ([]archive.Source, error) {
	var out []archive.Source
	err := filepath.WalkDir(dataDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dataDir {
			return err
		}
		rel, err := filepath.Rel(dataDir, path)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		leave := slices.Contains(notKept, name) || strings.HasPrefix(d.Name(), ".") // half written
		switch {
		case d.IsDir() && leave:
			return fs.SkipDir
		case d.IsDir(), leave, strings.HasPrefix(name, "control-plane/control-plane") && strings.HasSuffix(name, ".log"):
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is no plain file", path)
		}
		out = append(out, archive.Source{Name: name, Path: path})
		return nil
	})
	return out, err
}

// backup writes the state of the server that runs on a data directory to a file.
func backup(ctx context.Context, search plane.Search, dataDir, file string) error {
	dataDir, err := filepath.EvalSymlinks(dataDir)
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(file), "."+filepath.Base(file)+"-") // mode 0700
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	defer os.RemoveAll(temp)
	snapshot := archive.Source{Name: archive.Snapshot, Path: filepath.Join(temp, archive.Snapshot)}
	if err := plane.Snapshot(ctx, search, planeDir(dataDir), snapshot.Path); err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	files, err := kept(dataDir)
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	out, err := os.OpenFile(filepath.Join(temp, "backup"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	err = archive.Write(out, time.Now(), append([]archive.Source{snapshot}, files...))
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.Rename(out.Name(), file); err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	return syncDir(filepath.Dir(file))
}

// restore makes a data directory of a backup, in one step: it is whole, or not there.
func restore(ctx context.Context, search plane.Search, file, dataDir string) (created time.Time, err error) {
	fail := func(err error) (time.Time, error) { return time.Time{}, fmt.Errorf("restore %s: %w", file, err) }
	if dataDir, err = filepath.Abs(dataDir); err != nil {
		return fail(err)
	}
	owner, err := emptyDir(dataDir)
	if err != nil {
		return fail(err)
	}
	in, err := os.Open(file)
	if err != nil {
		return fail(err)
	}
	defer in.Close()
	// All of it is looked at before anything is written.
	if _, err := archive.Read(in, func(archive.File, io.Reader) error { return ctx.Err() }); err != nil {
		return fail(err)
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return fail(err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(dataDir), "."+filepath.Base(dataDir)+"-restore-") // mode 0700
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(temp)
	state := filepath.Join(temp, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		return fail(err)
	}
	created, err = archive.Read(in, func(f archive.File, text io.Reader) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if f.Name != archive.Snapshot {
			return putFile(state, f.Name, text)
		}
		if err := putFile(temp, f.Name, text); err != nil {
			return err
		}
		defer os.Remove(filepath.Join(temp, f.Name))
		return plane.Restore(ctx, search, planeDir(state), filepath.Join(temp, f.Name))
	})
	if err != nil {
		return fail(err)
	}
	if err := putFile(state, restoredFile, strings.NewReader("join tokens are ended at the next start\n")); err != nil {
		return fail(err)
	}
	if err := handOver(state, owner); err != nil {
		return fail(err)
	}
	if err := syscall.Rename(state, dataDir); err != nil { // takes the place of an empty directory alone, as os.Rename does not
		return fail(err)
	}
	return created, syncDir(filepath.Dir(dataDir))
}

// restoredFile is in a data directory that was restored, until the join tokens of then are ended.
const restoredFile = "restored"

// endTokens takes back the join tokens that a backup has brought back: they may have been used since, and whoever still
// has one could join in the place of a machine.
func endTokens(ctx context.Context, dataDir string, client dynamic.Interface) (ended int, err error) {
	path := filepath.Join(dataDir, restoredFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	all := client.Resource(isobarv1alpha2.GroupVersion.WithResource(isobarv1alpha2.ResourceAgentIdentities))
	list, err := all.List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("end the join tokens of a backup: %w", err)
	}
	for i := range list.Items {
		u := &list.Items[i]
		if _, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "joinToken"); !ok {
			continue
		}
		unstructured.RemoveNestedField(u.Object, "spec", "joinToken")
		if _, err := all.Namespace(u.GetNamespace()).Update(ctx, u, metav1.UpdateOptions{}); err != nil {
			return ended, fmt.Errorf("end the join token of %s/%s, which is of a backup: %w", u.GetNamespace(), u.GetName(), err)
		}
		ended++
	}
	return ended, os.Remove(path)
}

// emptyDir returns what an empty directory is, nil where there is nothing, and an error for all else.
func emptyDir(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is no directory", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("%s is not empty: move it away, or give another directory", path)
	}
	return info, nil
}

// putFile writes a new file below dir, mode 0600, and the directories above it. Nothing leads out of dir.
func putFile(dir, name string, text io.Reader) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(name)), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, text)
	return errors.Join(err, f.Sync(), f.Close())
}

// handOver gives all that is below dir, and dir, to the owner of what it takes the place of, and has it outlive
// a power cut.
func handOver(dir string, owner fs.FileInfo) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if owner != nil {
			if st, ok := owner.Sys().(*syscall.Stat_t); ok {
				if err := os.Lchown(path, int(st.Uid), int(st.Gid)); err != nil {
					return err
				}
			}
		}
		if d.IsDir() {
			return syncDir(path)
		}
		return nil
	})
}

// syncDir has the names in a directory outlive a power cut.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
