package announce

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// infoName is the one AntreaControllerInfo that there is.
const infoName = "antrea-controller"

var infos = antreav1beta1.GroupVersion.WithResource("antreacontrollerinfos")

// Heartbeat writes the AntreaControllerInfo: what a controller says of itself, and when. It is to
// be called once a minute by the one who leads. One that somebody else has written is an error,
// unless takeOver is set; fields that we do not know stay, and of its metadata so does all but the owners of
// info. Kubernetes deletes it when they are deleted.
func Heartbeat(ctx context.Context, client dynamic.Interface, info antreav1beta1.AntreaControllerInfo, takeOver bool) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&info)
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	delete(fields, "metadata")
	have, err := client.Resource(infos).Get(ctx, infoName, metav1.GetOptions{})
	isNew := apierrors.IsNotFound(err)
	switch {
	case isNew:
		have = &unstructured.Unstructured{Object: map[string]any{}}
		have.SetName(infoName)
	case err != nil:
		return fmt.Errorf("heartbeat: %w", err)
	case !isOurs(have) && !takeOver:
		return fmt.Errorf("heartbeat: the AntreaControllerInfo %s is somebody else's: delete it, or set takeOver, where no antrea-controller runs any more", infoName)
	}
	mark(have)
	have.SetOwnerReferences(info.OwnerReferences)
	for _, zero := range []string{"connectedAgentNum", "networkPolicyControllerInfo", "version"} {
		delete(have.Object, zero) // a field of ours that is empty is not written
	}
	for k, v := range fields {
		have.Object[k] = v
	}
	have.SetGroupVersionKind(antreav1beta1.GroupVersion.WithKind("AntreaControllerInfo"))
	if isNew {
		_, err = client.Resource(infos).Create(ctx, have, metav1.CreateOptions{})
	} else {
		_, err = client.Resource(infos).Update(ctx, have, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	return nil
}
