import numpy as np, json, sys
from safetensors import safe_open
import struct
def load(path):
    b=open(path,'rb').read(); n=struct.unpack('<Q',b[:8])[0]; h=json.loads(b[8:8+n]); d={}
    for k,v in h.items():
        if k=='__metadata__': continue
        a,e=v['data_offsets']; raw=b[8+n+a:8+n+e]
        if v['dtype']=='BF16': x=(np.frombuffer(raw,np.uint16).astype(np.uint32)<<16).view(np.float32)
        elif v['dtype']=='I32': x=np.frombuffer(raw,np.int32)
        elif v['dtype']=='I64': x=np.frombuffer(raw,np.int64)
        else: x=np.frombuffer(raw,np.float32)
        d[k]=x.reshape(v['shape'])
    return d
case=sys.argv[1]; D='/work/shared/goldens/networks/'+case
cfg=json.load(open(D+'/config.json')); W=load(D+'/model.safetensors'); G=load(D+'/golden.safetensors')
pre='model.' if 'model.norm.weight' in W else 'model.language_model.'
def run(ft, perturb=0.0, rf=None):
    w=lambda n: W[pre+n].astype(ft)
    ids=G['input_ids']; S=len(ids); Dm=cfg['hidden_size']; L=cfg['num_hidden_layers']; P=cfg['hidden_size_per_layer_input']; eps=ft(1e-6)
    norm=lambda x,g=None: (x*((x*x).mean(-1,keepdims=True)+eps)**ft(-0.5))*(1 if g is None else g)
    gelu=lambda x: ft(0.5)*x*(1+np.tanh(ft(np.sqrt(2/np.pi))*(x+ft(0.044715)*x**3)))
    x=w('embed_tokens.weight')[ids]*ft(np.float32(Dm**0.5))
    if perturb: x=x*(1+perturb*np.random.default_rng(0).standard_normal(x.shape)).astype(ft)
    hs=[x]
    if P:
        t=w('embed_tokens_per_layer.weight')[ids].reshape(S,L,P)*ft(P**0.5)
        c=norm(((x@w('per_layer_model_projection.weight').T)*ft(Dm**-0.5)).reshape(S,L,P),w('per_layer_projection_norm.weight'))
        ple=(c+t)*ft(2**-0.5)
    shared=L-cfg['num_kv_shared_layers']; store={}
    for l in range(L):
        p=f'layers.{l}.'; sl=cfg['layer_types'][l]=='sliding_attention'
        E=cfg['head_dim'] if sl else cfg['global_head_dim']; H=cfg['num_attention_heads']
        half=E//2; inv=np.zeros(half,np.float32)
        if sl: inv=(1/(10000.0**(np.arange(0,E,2,dtype=np.float32)/np.float32(E)))).astype(np.float32)
        else:
            n=int(0.25*E/2); inv[:n]=(1/(1e6**(np.arange(0,2*n,2,dtype=np.float32)/np.float32(E)))).astype(np.float32)
        ang=np.arange(S,dtype=np.float32)[:,None]*inv; cos=np.cos(ang.astype(ft))[:,None]; sin=np.sin(ang.astype(ft))[:,None]
        rope=lambda y: np.concatenate([y[...,:half]*cos-y[...,half:]*sin, y[...,half:]*cos+y[...,:half]*sin],-1)
        a=norm(x,w(p+'input_layernorm.weight'))
        q=rope(norm((a@w(p+'self_attn.q_proj.weight').T).reshape(S,H,E),w(p+'self_attn.q_norm.weight')))
        if l<shared:
            kr=(a@w(p+'self_attn.k_proj.weight').T).reshape(S,-1,E)
            vr=kr if (pre+p+'self_attn.v_proj.weight') not in W else (a@w(p+'self_attn.v_proj.weight').T).reshape(S,-1,E)
            k=rope(norm(kr,w(p+'self_attn.k_norm.weight'))); v=norm(vr); store[sl]=(k,v)
        else: k,v=store[sl]
        K=k.shape[1]; g=H//K; o=np.zeros((S,H,E),ft)
        mask=np.tril(np.ones((S,S),bool))
        if sl: mask&= (np.arange(S)[:,None]-np.arange(S)[None])<cfg['sliding_window']
        for h in range(H):
            s=q[:,h]@k[:,h//g].T; s=np.where(mask,s,-np.inf); s=np.exp(s-s.max(-1,keepdims=True)); s=s/s.sum(-1,keepdims=True); o[:,h]=s@v[:,h//g]
        x=x+norm(o.reshape(S,-1)@w(p+'self_attn.o_proj.weight').T,w(p+'post_attention_layernorm.weight'))
        z=norm(x,w(p+'pre_feedforward_layernorm.weight'))
        f=(gelu(z@w(p+'mlp.gate_proj.weight').T)*(z@w(p+'mlp.up_proj.weight').T))@w(p+'mlp.down_proj.weight').T
        x=x+norm(f,w(p+'post_feedforward_layernorm.weight'))
        if P: x=x+norm((gelu(x@w(p+'per_layer_input_gate.weight').T)*ple[:,l])@w(p+'per_layer_projection.weight').T,w(p+'post_per_layer_input_norm.weight'))
        x=x*w(p+'layer_scalar')
        hs.append(x)
    y=norm(x,w('norm.weight')); hs[-1]=y
    return np.array(hs), 30*np.tanh(y@w('embed_tokens.weight').T/ft(30))
g=G['hidden_states']
rms=lambda a: np.sqrt((a.astype(np.float64)**2).mean(axis=(1,2)))
h64,l64=run(np.float64); h32,l32=run(np.float32); hp,lp=run(np.float64,6e-8)
d=lambda a,b: np.abs(a.astype(np.float64)-b).max(axis=(1,2))/rms(g)
print('golden-f64',np.array2string(d(g,h64),precision=1)); print('np32-f64',np.array2string(d(h32,h64),precision=1)); print('np32-golden',np.array2string(d(h32,g),precision=1)); print('perturbed 1/2ulp - f64',np.array2string(d(hp,h64),precision=1))
print('logits golden-f64',np.abs(G['logits']-l64).max(),'np32-f64',np.abs(l32-l64).max(),'pert',np.abs(lp-l64).max(), 'np32-golden', np.abs(l32-G['logits']).max())
