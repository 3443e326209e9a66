// SPDX-License-Identifier: Apache-2.0

package ondevice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/lklrun/lklrun/internal/diag/crash"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// readable lists the files of a run directory that the desk may read.
var readable = []string{instance.PlanFile, instance.JournalFile, instance.ResolvFile, instance.LogFile, instance.CountersFile}

// Read writes files of the run directory of the instance called name as one JSON
// object that maps names to base64 content. It omits missing files. Of a long file,
// it writes only the end, with one byte more than a report accepts.
// crash.PacketsFile and crash.KeptFile contain the packets that lklrun has kept.
func Read(ctx context.Context, name string, files []string, out io.Writer) error {
	info, err := instance.Place{}.Open(name)
	if err != nil {
		return err
	}
	all := map[string][]byte{}
	for _, f := range files {
		if f == crash.PacketsFile {
			if err := packets(ctx, info, all); err != nil {
				return err
			}
			continue
		}
		if !slices.Contains(readable, f) {
			return fmt.Errorf("%q is not an accessible file of a run directory", f)
		}
		data, err := end(filepath.Join(info.Dir, f), crash.PartMax+1)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		all[f] = data
	}
	return json.NewEncoder(out).Encode(all)
}

// end reads the last bytes of a file.
func end(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > most {
		if _, err := f.Seek(st.Size()-most, io.SeekStart); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, most))
}

// packets requests the packets that lklrun has kept.
func packets(ctx context.Context, info *instance.Info, all map[string][]byte) error {
	conn, err := stackconn.Dial(ctx, info.Socket())
	if err != nil {
		return err
	}
	defer conn.Close()
	kept, pcapng, err := crash.Packets(ctx, conn)
	if err != nil {
		return err
	}
	all[crash.PacketsFile] = pcapng
	all[crash.KeptFile], err = json.Marshal(kept)
	return err
}

// Keep stores the content of in as the file of counters in the run directory of
// the instance called name, atomically.
func Keep(name string, in io.Reader) error {
	info, err := instance.Place{}.Open(name)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(in, crash.PartMax))
	if err != nil {
		return err
	}
	d := instance.Dir{Path: info.Dir, Name: info.Name}
	return d.WriteFile(instance.CountersFile, data)
}
