package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	armruntime "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
)

// The versions of Azure's APIs. What a version does not know of a resource, it
// does not tell, and may lose when the resource is put back: so the one of networks
// is young.
const (
	networkVersion  = "2025-05-01"
	computeVersion  = "2025-04-01"
	scaleSetVersion = "2018-10-01" // the only one that tells the interfaces of scale sets
)

// The types of resources, as parts of IDs.
const (
	typeNSG      = "Microsoft.Network/networkSecurityGroups"
	typeASG      = "Microsoft.Network/applicationSecurityGroups"
	typeNIC      = "Microsoft.Network/networkInterfaces"
	typeVNet     = "Microsoft.Network/virtualNetworks"
	typeSubnet   = "Microsoft.Network/virtualNetworks/subnets"
	typePublicIP = "Microsoft.Network/publicIPAddresses"
	typeVM       = "Microsoft.Compute/virtualMachines"
	typeScaleSet = "Microsoft.Compute/virtualMachineScaleSets"
	typeLocation = "Microsoft.Resources/subscriptions/locations"
)

// client calls Resource Manager for one subscription and region. Its methods may be
// called from several goroutines. Their errors are on one line, and resultOf tells
// them apart.
type client struct {
	subscription string
	endpoint     string // without a slash at its end
	pipeline     runtime.Pipeline
	limits       *limiter
	lists        *lists // of the subscription
	pollEvery    time.Duration
}

// newClient returns a client whose calls pass through limits.
func newClient(subscription, endpoint string, credential azcore.TokenCredential, limits *limiter, o policy.ClientOptions, pollEvery time.Duration) (*client, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, errors.New("endpoint: not a URL")
	}
	// The limiter comes before the token is fetched, which would grow old meanwhile.
	before := runtime.PipelineOptions{PerRetry: []policy.Policy{pinned{u.Scheme, u.Host}, limits}}
	pipeline, err := armruntime.NewPipeline("isobar", "v0.0.0", credential, before, &arm.ClientOptions{ClientOptions: o, DisableRPRegistration: true})
	if err != nil {
		return nil, err
	}
	return &client{subscription: subscription, endpoint: strings.TrimSuffix(endpoint, "/"), pipeline: pipeline, limits: limits, lists: &lists{}, pollEvery: pollEvery}, nil
}

const (
	// maxPages bounds a listing, where we stop believing that it ends.
	maxPages = 2000
	// maxItems bounds a listing, in resources.
	maxItems = 500_000
)

// list calls each with every resource of a type that the subscription has, in every
// region, as Azure writes it.
func (c *client) list(ctx context.Context, kind, version string, each func(json.RawMessage) error) error {
	return c.listAt(ctx, "/subscriptions/"+c.subscription+"/providers/"+kind, url.Values{"api-version": {version}}, each)
}

// listAt does the same for a listing of any path.
func (c *client) listAt(ctx context.Context, path string, query url.Values, each func(json.RawMessage) error) error {
	next := c.endpoint + path + "?" + query.Encode()
	seen := map[string]bool{}
	items := 0
	for next != "" {
		if seen[next] {
			return errors.New("a page leads back to itself")
		}
		if seen[next] = true; len(seen) > maxPages {
			return fmt.Errorf("more than %d pages", maxPages)
		}
		req, err := runtime.NewRequest(ctx, http.MethodGet, next)
		if err != nil {
			return errors.New("a page leads to what is not a URL")
		}
		body, _, err := c.do(req, http.StatusOK)
		if err != nil {
			return err
		}
		var page struct {
			Value    *[]json.RawMessage `json:"value"`
			NextLink *string            `json:"nextLink"`
		}
		// An answer without a list is no empty list.
		if err := json.Unmarshal(body, &page); err != nil || page.Value == nil {
			return errors.New("the answer is not a list")
		}
		if items += len(*page.Value); items > maxItems {
			return fmt.Errorf("more than %d resources", maxItems)
		}
		for _, item := range *page.Value {
			if err := each(item); err != nil {
				return err
			}
		}
		if next = ""; page.NextLink != nil {
			next = *page.NextLink
		}
	}
	return nil
}

// do sends a request, whose answer is the JSON object that it returns.
func (c *client) do(req *policy.Request, want ...int) ([]byte, *http.Response, error) {
	req.Raw().Header.Set("Accept", "application/json")
	resp, err := c.pipeline.Do(req)
	if err != nil {
		return nil, nil, readable(err)
	}
	if !runtime.HasStatusCode(resp, want...) {
		return nil, nil, errorOf(resp)
	}
	body, err := runtime.Payload(resp)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("read the answer: %w", err)
	case !isObject(body):
		return nil, nil, errors.New("the answer is not a JSON object")
	}
	return body, resp, nil
}

// document is a resource as Azure writes it, with all that we know nothing of.
// Numbers are json.Number.
type document map[string]any

// parseDocument parses one JSON object.
func parseDocument(b []byte) (document, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var doc document
	if err := d.Decode(&doc); err != nil || doc == nil || d.More() {
		return nil, errors.New("not a JSON object")
	}
	return doc, nil
}

// into decodes what out has fields for.
func (d document) into(out any) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// etag returns the mark of the state that the document has.
func (d document) etag() string {
	s, _ := d["etag"].(string)
	return s
}

// url returns where a resource is, if it is of our subscription: nothing else is
// ours to read or write one by one.
func (c *client) url(id resourceID) (string, error) {
	if !strings.EqualFold(id.subscription, c.subscription) {
		return "", fmt.Errorf("%s: of another subscription", id)
	}
	version := networkVersion
	if strings.EqualFold(id.provider, "Microsoft.Compute") {
		version = computeVersion
	}
	return c.endpoint + id.path() + "?api-version=" + version, nil
}

// get reads a resource. The result of its error is ResultGone where there is none.
func (c *client) get(ctx context.Context, id resourceID) (document, error) {
	u, err := c.url(id)
	if err != nil {
		return nil, err
	}
	req, err := runtime.NewRequest(ctx, http.MethodGet, u)
	if err != nil {
		return nil, err
	}
	body, resp, err := c.do(req, http.StatusOK)
	if err != nil {
		return nil, err
	}
	doc, err := parseDocument(body)
	if err != nil {
		return nil, err
	}
	if told, _ := doc["id"].(string); !strings.EqualFold(told, id.String()) {
		return nil, errors.New("the answer is of another resource")
	}
	if tag := resp.Header.Get("ETag"); doc.etag() == "" && tag != "" {
		doc["etag"] = tag
	}
	return doc, nil
}

// errChanged says that a resource is no longer what it was when it was read.
var errChanged = errors.New("it has changed since it was read")

// create makes a resource, which must not be there, and waits until it is made.
func (c *client) create(ctx context.Context, id resourceID, doc document) (document, error) {
	return c.put(ctx, id, doc, "If-None-Match", "*")
}

// replace puts a document back that get returned and somebody altered, if the
// resource is still what it was then, and waits until Azure has done it. It returns
// what there is now.
func (c *client) replace(ctx context.Context, id resourceID, doc document) (document, error) {
	tag := doc.etag()
	if tag == "" {
		return nil, errors.New("Azure tells no ETag, and whose changes are lost is not known")
	}
	return c.put(ctx, id, doc, "If-Match", tag)
}

// edit reads a resource, has change alter it, and puts it back. When change returns
// false, nothing is written. It returns what there is now.
func (c *client) edit(ctx context.Context, id resourceID, change func(document) (bool, error)) (document, error) {
	doc, err := c.get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if write, err := change(doc); err != nil || !write {
		return doc, err
	}
	return c.replace(ctx, id, doc)
}

func (c *client) put(ctx context.Context, id resourceID, doc document, header, tag string) (document, error) {
	u, err := c.url(id)
	if err != nil {
		return nil, err
	}
	req, err := runtime.NewRequest(ctx, http.MethodPut, u)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	if err := req.SetBody(streaming.NopCloser(bytes.NewReader(body)), "application/json"); err != nil {
		return nil, err
	}
	req.Raw().Header.Set(header, tag)
	_, resp, err := c.do(req, http.StatusOK, http.StatusCreated)
	if err != nil {
		return nil, changed(err)
	}
	raw, err := c.await(ctx, resp)
	if err != nil {
		return nil, err
	}
	now, err := parseDocument(raw)
	if err != nil {
		return nil, err
	}
	if told, _ := now["id"].(string); !strings.EqualFold(told, id.String()) {
		return nil, errors.New("the answer is of another resource")
	}
	return now, nil
}

// delete deletes a resource, if it is still what it was when it had the ETag, and
// waits until it is gone. One that is not there is deleted.
func (c *client) delete(ctx context.Context, id resourceID, etag string) error {
	u, err := c.url(id)
	if err != nil {
		return err
	}
	req, err := runtime.NewRequest(ctx, http.MethodDelete, u)
	if err != nil {
		return err
	}
	if etag != "" {
		req.Raw().Header.Set("If-Match", etag)
	}
	resp, err := c.pipeline.Do(req)
	if err != nil {
		return readable(err)
	}
	if !runtime.HasStatusCode(resp, http.StatusOK, http.StatusAccepted, http.StatusNoContent) {
		if err := errorOf(resp); err.result() != ResultGone {
			return changed(err)
		}
		return nil
	}
	_, err = c.await(ctx, resp)
	return err
}

// changed tells a write that came too late.
func changed(err error) error {
	var e *armError
	if errors.As(err, &e) && e.status == http.StatusPreconditionFailed {
		return fmt.Errorf("%w (%w)", errChanged, err)
	}
	return err
}

// await waits until what an answer has begun is done, and returns how the resource
// ended up.
func (c *client) await(ctx context.Context, resp *http.Response) (json.RawMessage, error) {
	if resp.Header.Get("Azure-AsyncOperation") != "" {
		// The answer to an update says Succeeded while the operation goes on, which may
		// still fail. The SDK would believe it, and not ask.
		resp.Body = io.NopCloser(strings.NewReader("{}"))
	}
	poller, err := runtime.NewPoller[json.RawMessage](resp, c.pipeline, nil)
	if err != nil {
		return nil, readable(err)
	}
	out, err := poller.PollUntilDone(ctx, &runtime.PollUntilDoneOptions{Frequency: c.pollEvery})
	if err != nil {
		return nil, fmt.Errorf("wait for the operation: %w", readable(err))
	}
	return out, nil
}

// actions are the rights that the calls of this package need, by method and type
// of resource. The custom role in deploy/iam has these and what writing involves.
var actions = map[string]bool{ // read only
	typeNSG + "/read": true, typeNSG + "/write": true, typeNSG + "/delete": true,
	typeASG + "/read": true, typeASG + "/write": true, typeASG + "/delete": true,
	typeNIC + "/read": true, typeNIC + "/write": true,
	typeVNet + "/" + listAdminRules + "/action": true,
	typeVNet + "/read":                          true, typePublicIP + "/read": true,
	typeVM + "/read": true, typeScaleSet + "/read": true,
	typeScaleSet + "/virtualMachines/read":        true,
	typeScaleSet + "/networkInterfaces/read":      true,
	typeScaleSet + "/publicIPAddresses/read":      true,
	"Microsoft.Network/locations/operations/read": true,
	typeLocation + "/read":                        true,
}

// apiOf returns the right that a call needs: one of a bounded number of words,
// whatever the path is, which may be Azure's own.
func apiOf(method, path string) string {
	call := kindOf(method, path)
	verb := map[kindOfCall]string{reading: "/read", writing: "/write", deleting: "/delete"}[call]
	if method == http.MethodPost && call == reading {
		verb = "/action"
	}
	i := strings.LastIndex(strings.ToLower(path), "/providers/")
	if i < 0 && verb == "/read" && strings.HasSuffix(path, "/locations") {
		return typeLocation + verb
	}
	if i < 0 {
		return "other" + verb
	}
	parts := strings.Split(path[i+len("/providers/"):], "/")
	kind := parts[0]
	for j := 1; j < len(parts); j += 2 {
		kind += "/" + parts[j]
	}
	for known := range actions {
		if strings.EqualFold(known, kind+verb) {
			return known
		}
	}
	return "other" + verb
}
